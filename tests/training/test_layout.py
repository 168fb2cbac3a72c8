"""Ranks in their places, and layers and experts in theirs."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from model.config import flops_per_token
from model.sizes import model_preset
from tests.training.runs import MODEL, STAGES
from training.config import PretrainConfig
from training.layout import Layout, LayoutError, costs

SIDES = st.integers(1, 6)


@given(pipeline=SIDES, data=SIDES, expert=SIDES)
def test_every_rank_has_a_place_of_its_own(pipeline: int, data: int, expert: int) -> None:
    layout = Layout(pipeline=pipeline, expert=expert)
    ranks = pipeline * data * expert
    places = [layout.place(rank, ranks) for rank in range(ranks)]
    assert len(set(places)) == ranks
    assert places == sorted(places, key=lambda place: (place.pipeline, place.data, place.expert))
    assert {place.data for place in places} == set(range(data))


@given(
    name=st.sampled_from(["k2", "gpu", "3b"]),
    pipeline=st.integers(2, 8),
    virtual=st.integers(1, 3),
    dense=st.integers(0, 2),
)
def test_pieces_hold_every_layer_once_and_no_move_helps(name: str, pipeline: int, virtual: int, dense: int) -> None:
    model = model_preset(name, first_k_dense_replace=dense)
    assume(pipeline * virtual <= model.num_hidden_layers)
    pieces = Layout(pipeline=pipeline, virtual=virtual).layers(model)
    assert len(pieces) == pipeline * virtual
    assert [layer for piece in pieces for layer in piece] == list(range(model.num_hidden_layers))
    assert min(map(len, pieces)) > 0
    layer, plain, head = costs(model)
    loads = [
        sum(plain if index < dense else layer for piece in pieces[rank::pipeline] for index in piece)
        + head * (rank == pipeline - 1)
        for rank in range(pipeline)
    ]
    movable = [load for rank, load in enumerate(loads) if sum(map(len, pieces[rank::pipeline])) > virtual]
    assert max(movable, default=0) <= min(loads) + layer + abs(plain - layer) * dense + 1


def test_the_head_weighs_as_much_as_two_of_k2s_layers() -> None:
    """15 ranks of four layers and one of a layer and the head; cut evenly, the last would take 1.3 times as long."""
    k2 = model_preset("k2")
    layer, dense, head = costs(k2)
    assert 2 * (layer * 60 + dense + head) == flops_per_token(k2, k2.max_position_embeddings, training=False)
    assert [len(piece) for piece in Layout(pipeline=16).layers(k2)] == [4] * 15 + [1]
    even = 3 * layer + head
    assert even / max(4 * layer, layer + head) == pytest.approx(1.29, abs=0.01)
    twice = Layout(pipeline=16, virtual=2).layers(k2)
    assert [len(twice[rank]) + len(twice[rank + 16]) for rank in range(16)] == [4] * 14 + [3, 2]


def test_k2s_layout_takes_multiples_of_32_nodes() -> None:
    layout = Layout(pipeline=16, expert=16)
    layout.require(model_preset("k2"))
    assert layout.data(96 * 8) == 3
    assert list(layout.experts(model_preset("k2"), 15)) == list(range(360, 384))
    with pytest.raises(LayoutError, match=r"776 ranks do not hold whole copies .* such as 1024"):
        layout.data(97 * 8)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"pipeline": 2, "virtual": 2}, "2 x 2 pieces for 2 layers"),
        ({"virtual": 2}, "virtual = 2 pieces a rank, of a pipeline of one rank"),
        ({"expert": 3}, "4 experts do not divide by expert = 3"),
        ({"expert": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_cut_is_refused(layout: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PretrainConfig.model_validate({"model": MODEL, "stages": STAGES, "run": {"layout": layout}})
