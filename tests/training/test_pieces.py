"""Which rank writes which piece, and whether pieces make up whole tensors."""

from __future__ import annotations

import itertools
import json

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.sizes import model_preset
from tests.training.layouts import part
from training.checkpoint import whole
from training.layout import Layout
from training.pieces import Piece, faults, file_names, index_of, index_record, pieces_of, read_index, share_out, spread

CONFIG = model_preset("tiny", num_hidden_layers=4)
SHAPES = whole(CONFIG)
META = {name: torch.empty(shape, device="meta") for name, shape in SHAPES.items()}


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, int]:
    """A layout and a number of ranks that it fits."""
    pipeline = draw(st.integers(1, 4))
    virtual = draw(st.integers(1, 4 // pipeline))
    layout = Layout(pipeline=pipeline, virtual=virtual, expert=draw(st.sampled_from([1, 2, 4, 8])))
    return layout, layout.copy_ranks * draw(st.integers(1, 3))


@given(layouts())
@settings(max_examples=30)
def test_every_piece_is_written_once_by_a_rank_that_holds_it(drawn: tuple[Layout, int]) -> None:
    layout, ranks = drawn
    parts = [part(CONFIG, META, layout, rank, ranks) for rank in range(ranks)]
    held = [pieces_of(each.weights, each.cuts) for each in parts]
    shares = share_out(held)
    assert all(set(share) <= set(pieces) for share, pieces in zip(shares, held, strict=True))
    written = list(itertools.chain(*shares))
    assert len(written) == len(set(written))
    assert set(written) == set(itertools.chain(*held))
    assert sum(piece.bytes for piece in written) == sum(tensor.nbytes for tensor in META.values())

    names = file_names("model", shares)
    index = index_of({name: share for name, share in zip(names, shares, strict=True) if name})
    assert faults(index, SHAPES) == ""
    assert read_index(json.loads(json.dumps(index_record(index)))) == index
    files = sorted(filter(None, names))
    assert len(files) == len(set(files))
    assert files == ["model.safetensors"] or all(name.endswith(f"-of-{len(files)}.safetensors") for name in files)

    momenta = share_out([pieces_of(each.optimizer_state) for each in parts])
    assert sorted(each.key for share in momenta for each in share) == sorted(
        {key for each in parts for key in each.optimizer_state}
    )


def test_k2_on_512_ranks() -> None:
    """Each rank writes some GB of 4.1 TB, and opens the files of its pipeline stage alone: 32 of 512."""
    config, layout, ranks = model_preset("k2"), Layout(pipeline=16, expert=16), 512
    meta = {name: torch.empty(shape, device="meta") for name, shape in whole(config).items()}
    parts = [part(config, meta, layout, rank, ranks) for rank in range(ranks)]
    shares = share_out([pieces_of(each.weights, each.cuts) for each in parts])
    sizes = [sum(piece.bytes for piece in share) for share in shares]
    assert sum(sizes) == 4 * 1_026_408_232_448
    assert 5.7e9 < min(sizes[:480]) < max(sizes) < 9e9
    assert 1.4e9 < min(sizes[480:]) < max(sizes[480:]) < 4.8e9  # the last stage: a layer and the head
    index = index_of({str(rank): share for rank, share in enumerate(shares)})
    assert faults(index, whole(config)) == ""
    for rank in (0, 300, 511):
        mine = pieces_of(parts[rank].weights, parts[rank].cuts)
        opened = {
            int(file)
            for part_of in mine
            for piece, file in index[part_of.name]
            if piece.first < part_of.first + part_of.length and part_of.first < piece.first + piece.length
        }
        stage = rank // 32
        assert opened <= set(range(stage * 32, stage * 32 + 32))


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 9))
def test_bytes_are_spread_evenly(sizes: list[int], ranks: int) -> None:
    """Greedy lists: no rank has more than the mean and one thing beside it."""
    things = dict(enumerate(sizes))
    shares = spread(things, None, ranks)
    assert sorted(itertools.chain(*shares)) == sorted(things)
    loads = [sum(things[thing] for thing in share) for share in shares]
    assert max(loads) <= sum(sizes) / ranks + max(sizes)
    assert max(loads) - min(loads) <= max(sizes)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=8), st.data())
def test_what_does_not_make_up_the_tensor_is_named(lengths: list[int], data: st.DataObject) -> None:
    shape = (sum(lengths), 3)
    starts = [0, *itertools.accumulate(lengths)][:-1]
    pieces = [Piece("w", shape, "float32", first, length) for first, length in zip(starts, lengths, strict=True)]

    def told(changed: list[Piece], name: str = "w", wanted: tuple[int, ...] = shape) -> str:
        shuffled = data.draw(st.permutations(changed))
        return faults(index_of({f"file-{at}": [piece] for at, piece in enumerate(shuffled)}), {name: wanted})

    assert told(pieces) == ""
    at = data.draw(st.integers(0, len(pieces) - 1))
    assert told(pieces[:at] + pieces[at + 1 :]) == "1 with missing pieces: w"
    longer = pieces[at]._replace(length=lengths[at] + 1)
    assert told([*pieces[:at], longer, *pieces[at + 1 :]]) == "1 with overlapping pieces: w"
    assert told([*pieces, pieces[at]]) == "1 with overlapping pieces: w"
    assert told(pieces, wanted=(shape[0], 4)) == f"1 of another shape: w {shape} for {(shape[0], 4)}"
    assert told(pieces, name="v") == "1 missing: v; 1 unknown: w"
    other = pieces[at]._replace(dtype="bfloat16")
    assert told([*pieces[:at], other, *pieces[at + 1 :]]).startswith(
        "1 given differently by different ranks: w (bfloat16"
    )


def test_many_faults_are_counted_and_some_shown() -> None:
    told = faults({}, {f"layers.{layer}.norm": (3,) for layer in range(20)})
    assert told == f"20 missing: {', '.join(f'layers.{layer}.norm' for layer in range(8))}, ..."
