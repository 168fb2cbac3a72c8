"""Megatron's indexed datasets: shards go out and come back as they were; what is damaged is refused in one sentence."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.vocabulary import EOS, special_ids
from tasks.artifact import Artifact, Step
from tasks.tokens import exporting, importing, megatron
from tasks.tokens.config import TokenizerConfig, TokensConfig
from tasks.tokens.exporting import blend, export
from tasks.tokens.importing import ImportConfig, build, examine, pairs_in
from tasks.tokens.megatron import HEAD, MegatronError, Pair, Writer
from tasks.tokens.tokenizer import train
from tasks.tokens.writing import INDEX
from tests.shards import Nothing, publish_shards
from training.shards import TokenShards

VOCABULARY = 400
END = special_ids(VOCABULARY)[EOS]
DOMAINS = ("code", "web")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    step = Step("tokenizer", TokenizerConfig(vocabulary=VOCABULARY), str(tmp_path_factory.mktemp("data")))
    learned = train(iter(["To be, or not to be, that is the question. " * 20]), TokenizerConfig(vocabulary=VOCABULARY))
    step.put("tokenizer", ".json", lambda path: learned.save(str(path)))
    return step.publish({"vocabulary": VOCABULARY})


@dataclass
class Document:
    """One document of a made shard."""

    body: list[int]
    rewrite: bool


documents = st.lists(
    st.builds(Document, st.lists(st.integers(0, END - 1), min_size=1, max_size=9), st.booleans()),
    min_size=1,
    max_size=12,
)
stores = st.dictionaries(
    st.tuples(st.sampled_from(["train", "heldout"]), st.sampled_from(DOMAINS), st.sampled_from(["a", "Büch er"])),
    st.lists(documents, min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)


def table(shard: list[Document], source: str, first: int) -> tuple[np.ndarray, pa.Table]:
    """A shard's tokens and index."""
    ids = [[*document.body, END] for document in shard]
    end_N = np.cumsum([len(one) for one in ids])
    start_N = np.concatenate([[0], end_N[:-1]])
    names = [f"{first + number:032x}" for number in range(len(shard))]
    marks = [document.rewrite for document in shard]
    roots = [name[::-1] if mark else None for name, mark in zip(names, marks, strict=True)]
    columns = [start_N, end_N, names, [source] * len(shard), ["CC0-1.0"] * len(shard), marks, roots]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INDEX, strict=True)]
    return np.concatenate([np.asarray(one, "<u4") for one in ids]), pa.Table.from_arrays(arrays, schema=INDEX)


def store(root: Path, shards: dict, tokenizer: Artifact) -> Artifact:
    """A tokens artifact of these shards, made with `tokenizer`."""
    made, first = {}, 0
    for (split, domain, source), some in shards.items():
        for number, shard in enumerate(some):
            made[f"{split}/{domain}/{source}/{number:06d}-000"] = table(shard, source, first)
            first += len(shard)
    step = Step("tokens", Nothing(), str(root), (Step("tokenizer", TokenizerConfig(), "elsewhere"),))
    (listed,) = tokenizer.parts("tokenizer")
    facts = {"vocabulary": VOCABULARY, "end_of_document": END, "tokenizer_sha256": listed.sha256}
    artifact = publish_shards(step, made, facts)
    manifest = Path(artifact.uri) / "manifest.json"
    text = json.loads(manifest.read_text())
    text["inputs"][0]["uri"] = tokenizer.uri
    manifest.write_text(json.dumps(text))
    return Artifact.load(artifact.uri)


def held(uri: str) -> dict[tuple[str, str, str], tuple[list[int], list[dict]]]:
    """Tokens and documents of every stream, shard borders apart."""
    found = {}
    shards = TokenShards(uri)
    for split in shards.splits:
        for (domain, source), stream in shards.streams(split).items():
            tokens, rows = [], []
            for shard in stream:
                for row in pa.Table.from_batches(shard.rows()).to_pylist():
                    rows.append(row | {"start": row["start"] + len(tokens), "end": row["end"] + len(tokens)})
                tokens += shard.tokens_T.tolist()
            found[split, domain, source] = tokens, rows
    return found


def imported(
    root: Path, prefixes: list[Path], tokenizer: Artifact, end: int | None = None, tokens: TokensConfig | None = None
) -> Artifact:
    facts = {"domain": "web", "source": "elsewhere", "licence": "CC-BY-4.0"}
    pairs = tuple(examine(prefix, tokenizer, **facts) for prefix in prefixes)
    config = ImportConfig(pairs=pairs, end=end, tokens=tokens or TokensConfig(heldout_fraction=0, shard_bytes=1024))
    return build(Step("tokens", config, str(root)), prefixes, tokenizer)


def pair(prefix: Path, rows: list[list[int]], vocabulary: int = VOCABULARY) -> Path:
    """An indexed dataset of these documents."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with Writer(prefix, vocabulary) as writer:
        for row in rows:
            writer.add_tokens(np.asarray(row, np.int64))
        writer.add_lengths(np.asarray([len(row) for row in rows]))
        writer.finish()
    return prefix


@settings(max_examples=25, deadline=None)
@given(shards=stores, piece=st.integers(1, 7))
def test_shards_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: Artifact, shards: dict, piece: int
) -> None:
    root = tmp_path_factory.mktemp("round")
    tokens = store(root / "one", shards, tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        for module in (megatron, exporting):
            patch.setattr(module, "PIECE", piece)
        found = export(tokens, str(root / "out"))
        back = imported(root / "two", pairs_in([str(root / "out")]), tokenizer)
    assert held(back.uri) == held(tokens.uri)
    assert {(record.split, record.domain, record.source) for record in found.values()} == set(shards)
    counted = [one for (split, _, _), some in shards.items() if split == "train" for shard in some for one in shard]
    assert back.statistics["documents"] == len(counted)
    assert back.statistics["rewrites"]["documents"] == sum(one.rewrite for one in counted)
    shutil.rmtree(root)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, END - 1), max_size=6), max_size=20),
    vocabulary=st.sampled_from([VOCABULARY, 163_840]),
    piece=st.integers(1, 5),
    size=st.integers(1, 20),
)
def test_a_pair_reads_as_written_in_any_pieces_and_batches(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], vocabulary: int, piece: int, size: int
) -> None:
    prefix = tmp_path_factory.mktemp("pair") / "some.dots"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(megatron, "PIECE", piece)
        pair(prefix, rows, vocabulary)
        found = Pair.open(prefix)
        found.check()
        assert found.dtype == ("<u2" if vocabulary == VOCABULARY else "<i4")
        batches = found.batches(size)
        assert [number for low, high in batches for number in range(low, high)] == list(range(len(rows)))
        for low, high in batches:
            assert high - low == 1 or sum(len(row) + 1 for row in rows[low:high]) <= size
        read: list[list[int]] = []
        for low, high in batches:
            for first, tokens_T, end_N in found.read(low, high):
                assert first == len(read)
                read += [part.tolist() for part in np.split(tokens_T, end_N[:-1])]
    assert read == rows


def test_the_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    prefix = pair(tmp_path / "x", [[5, 6, 7], [8]])
    assert (tmp_path / "x.bin").read_bytes() == struct.pack("<4H", 5, 6, 7, 8)
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
    assert (tmp_path / "x.idx").read_bytes() == head + struct.pack("<2i2q3q", 3, 1, 0, 6, 0, 1, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"x.bin", "x.idx"}
    assert Pair.open(prefix).documents == 2


def test_other_peoples_documents_are_ended_and_named(tmp_path: Path, tokenizer: Artifact) -> None:
    rows = [[1, 2], [3, 9], [], [9], [4]]
    back = imported(tmp_path, [pair(tmp_path / "x", rows)], tokenizer, end=9)
    ((tokens, found),) = held(back.uri).values()
    assert tokens == [1, 2, END, 3, END, 4, END]
    assert back.statistics["empty"] == 2
    assert {row["source"] for row in found} == {"elsewhere"}
    assert {row["licence"] for row in found} == {"CC-BY-4.0"}
    assert len({row["id"] for row in found}) == 3
    again = imported(tmp_path / "b", [pair(tmp_path / "y", rows[:2])], tokenizer, end=9)
    assert [row["id"] for row in held(again.uri)["train", "web", "elsewhere"][1]] == [row["id"] for row in found[:2]]


def test_an_end_that_is_no_token_of_the_tokenizer_is_refused(tmp_path: Path, tokenizer: Artifact) -> None:
    prefix = pair(tmp_path / "x", [[1, 2]])
    with pytest.raises(MegatronError, match="--end 400 is no token: the tokenizer has 400 entries"):
        imported(tmp_path, [prefix], tokenizer, end=VOCABULARY)
    assert imported(tmp_path, [prefix], tokenizer, end=VOCABULARY - 1).statistics["documents"] == 1


def test_documents_of_several_sequences_are_joined(tmp_path: Path, tokenizer: Artifact) -> None:
    tokens = np.asarray([1, 2, 3, 4, END], "<i4")
    (tmp_path / "x.bin").write_bytes(tokens.tobytes())
    index = HEAD.pack(b"MMIDIDX\0\0", 1, 4, 4, 3) + struct.pack("<4i4q3q", 1, 2, 0, 2, 0, 4, 12, 12, 0, 2, 4)
    (tmp_path / "x.idx").write_bytes(index)
    back = imported(tmp_path, [tmp_path / "x"], tokenizer)
    assert held(back.uri)["train", "web", "elsewhere"][0] == [1, 2, 3, END, 4, END]


def test_held_out_documents_of_others_are_drawn(tmp_path: Path, tokenizer: Artifact) -> None:
    rows = [[number % 250, number // 250, END] for number in range(400)]
    config = TokensConfig(heldout_fraction=0.25, shard_bytes=1024)
    found = held(imported(tmp_path, [pair(tmp_path / "x", rows)], tokenizer, tokens=config).uri)
    counts = {split: len(some[1]) for (split, _, _), some in found.items()}
    assert sum(counts.values()) == 400
    assert 60 < counts["heldout"] < 140


def test_shards_are_as_large_as_asked(tmp_path: Path, tokenizer: Artifact) -> None:
    rows = [[1] * 99 for _ in range(50)]
    back = imported(tmp_path, [pair(tmp_path / "x", rows)], tokenizer)
    (stream,) = TokenShards(back.uri).streams("train").values()
    assert stream.tokens_N.tolist() == [200] * 25  # two ended documents fit in 1,024 bytes


def test_an_import_is_the_same_wherever_its_files_lie_and_is_not_done_twice(
    tmp_path: Path, tokenizer: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        pair(tmp_path / folder / "x", [[1, 2], [3]])
    one = imported(tmp_path / "data", [tmp_path / "a" / "x"], tokenizer)
    monkeypatch.setattr(importing, "write_batch", lambda *_: pytest.fail("it was imported before"))
    assert imported(tmp_path / "data", [tmp_path / "b" / "x"], tokenizer) == one


def test_an_export_is_not_done_twice_and_nothing_else_is_overwritten(
    tmp_path: Path, tokenizer: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = {("train", "web", "a"): [[Document([1, 2], False)]], ("heldout", "web", "a"): [[Document([3], False)]]}
    tokens = store(tmp_path / "one", shards, tokenizer)
    found = export(tokens, str(tmp_path / "out"))
    assert blend(found) == ["3", str(tmp_path / "out/train/web/a/tokens")]
    assert (tmp_path / "out/tokenizer.json").read_bytes() == tokenizer.file("tokenizer").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "Writer", lambda *_: pytest.fail("it was exported before"))
        assert export(tokens, str(tmp_path / "out")) == found
    other = store(tmp_path / "two", {("train", "web", "a"): [[Document([5], False)]]}, tokenizer)
    with pytest.raises(MegatronError, match="holds something else"):
        export(other, str(tmp_path / "out"))
    with pytest.raises(MegatronError, match="nothing of domain 'law'"):
        export(tokens, str(tmp_path / "out"), domain="law")


@pytest.mark.parametrize("suffix", [".bin", ".idx", ".parquet"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_second_export_writes_a_pair_anew_that_lost_a_file(
    tmp_path: Path, tokenizer: Artifact, suffix: str, cut: bool
) -> None:
    tokens = store(tmp_path / "one", {("train", "web", "a"): [[Document([1, 2], False)]]}, tokenizer)
    (prefix,) = found = export(tokens, str(tmp_path / "out"))
    notes = prefix.parent / "notes.txt"
    notes.write_text("mine")
    path = megatron.beside(prefix, suffix)
    whole = path.read_bytes()
    if cut:
        path.write_bytes(whole[:-1])
    else:
        path.unlink()
    assert export(tokens, str(tmp_path / "out")) == found
    assert path.read_bytes() == whole
    assert {file.name for file in prefix.parent.iterdir()} == {
        "notes.txt",
        *(f"tokens{each}" for each in (".bin", ".idx", ".parquet", ".json")),
    }
    assert [folder.name for folder in prefix.parent.parent.iterdir()] == [prefix.parent.name]


def test_an_export_that_was_killed_leaves_nothing_that_counts(
    tmp_path: Path, tokenizer: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = store(tmp_path / "one", {("train", "web", "a"): [[Document([1, 2], False)]]}, tokenizer)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            export(tokens, str(tmp_path / "out"))
    with pytest.raises(MegatronError, match=r"no \.idx under"):
        pairs_in([str(tmp_path / "out")])
    export(tokens, str(tmp_path / "out"))
    (prefix,) = pairs_in([str(tmp_path / "out")])
    assert prefix.name == "tokens"
    again = [f"{tmp_path}/out/../out", f"{prefix}.bin", os.path.relpath(prefix)]
    assert pairs_in(again) == [prefix]  # a pair that is named three times is read once


def put(offset: int, kind: str, *values: int) -> Callable[[bytes], bytes]:
    """A change of an index: values at an offset."""
    made = struct.pack(kind, *values)
    return lambda data: data[:offset] + made + data[offset + len(made) :]


LENGTHS, POINTERS, BORDERS = HEAD.size, HEAD.size + 12, HEAD.size + 36
"""Of an index of three documents."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "does not begin as an index"),
        (lambda data: data[:20], "does not begin as an index"),
        (put(0, "7s", b"PARQUET"), "does not begin as an index"),
        (put(9, "<Q", 2), "version 2"),
        (put(17, "<B", 9), "token type 9"),
        (put(17, "<B", 0), "token type 0"),
        (put(17, "<B", 7), "holds float32"),
        (put(18, "<Q", 4), "where its header asks"),
        (put(18, "<Q", 1 << 63), "where its header asks"),
        (put(26, "<Q", 1 << 60), "where its header asks"),
        (put(26, "<Q", 0), "no borders"),
        (lambda data: data[:-1], "where its header asks"),
        (lambda data: data + bytes(3), "multimodal"),
        (put(LENGTHS, "<i", -1), "sequence 0 has a length of -1"),
        (put(LENGTHS + 8, "<i", 1 << 30), "where its .idx lists"),
        (put(LENGTHS + 4, "<i", 3), "sequence 2 points at byte"),
        (put(POINTERS + 8, "<q", -2), "sequence 1 points at byte -2"),
        (put(POINTERS + 16, "<q", 1 << 62), "sequence 2 points at byte"),
        (put(BORDERS, "<q", 1), "do not ascend from 0"),
        (put(BORDERS + 8, "<2q", 3, 2), "do not ascend from 0"),
        (put(BORDERS + 24, "<q", 2), "end after sequence 2 of 3"),
        (put(BORDERS + 24, "<q", 9), "end after sequence 9 of 3"),
    ],
)
def test_a_damaged_index_is_refused(
    tmp_path: Path, tokenizer: Artifact, change: Callable[[bytes], bytes], said: str
) -> None:
    prefix = pair(tmp_path / "x", [[1, 2], [3], [4, 5]])
    index = tmp_path / "x.idx"
    index.write_bytes(change(index.read_bytes()))
    with pytest.raises(MegatronError, match=said):
        imported(tmp_path / "data", [prefix], tokenizer)
    assert not list((tmp_path).rglob("manifest.json"))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_altered_index_is_refused_or_means_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows = [[1, 2], [3], [4, 5]]
    prefix = pair(tmp_path_factory.mktemp("pair") / "x", rows)
    index = prefix.with_name("x.idx")
    whole = bytearray(index.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    index.write_bytes(whole)
    try:
        found = Pair.open(prefix)
        found.check()
    except MegatronError:
        return
    read = [part.tolist() for _, ids, end in found.read(0, found.documents) for part in np.split(ids, end[:-1])]
    # borders of documents may move, and a type may be one of the same size: the tokens stay
    assert [token for row in read for token in row] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("rows", "end", "said"),
    [
        ([[1], [2, VOCABULARY]], None, "document 1 has the token 400 and the tokenizer 400 entries"),
        ([[1, END, 2]], None, "document 0 has the end of a document, token 384, inside"),
        ([[1, 9], [3, 9, 2]], 9, "document 1 has the end of a document, token 9, inside"),
        ([[1, END]], 9, "document 0 has the end of a document, token 384, inside"),
        ([], None, "no documents"),
        ([[], [END]], None, "no tokens"),
    ],
)
def test_tokens_that_cannot_be_ours_are_refused(
    tmp_path: Path, tokenizer: Artifact, rows: list[list[int]], end: int | None, said: str
) -> None:
    with pytest.raises(MegatronError, match=said):
        imported(tmp_path / "data", [pair(tmp_path / "x", rows)], tokenizer, end)


def test_negative_tokens_are_refused(tmp_path: Path, tokenizer: Artifact) -> None:
    prefix = pair(tmp_path / "x", [[1, 2]], 163_840)
    (tmp_path / "x.bin").write_bytes(struct.pack("<2i", 1, -2))
    with pytest.raises(MegatronError, match="document 0 has the token -2"):
        imported(tmp_path / "data", [prefix], tokenizer)


def test_what_is_missing_or_unsaid_is_told(tmp_path: Path, tokenizer: Artifact) -> None:
    prefix = pair(tmp_path / "x", [[1, 2]])
    with pytest.raises(MegatronError, match="give --domain"):
        examine(prefix, tokenizer)
    with pytest.raises(MegatronError, match="give --domain"):
        examine(prefix, tokenizer, "../web", "a", "MIT")
    (tmp_path / "x.bin").unlink()
    with pytest.raises(MegatronError, match=r"x\.bin does not exist"):
        examine(prefix, tokenizer, "web", "a", "MIT")


@pytest.mark.parametrize("suffix", [".bin", ".idx", ".parquet", ".json"])
def test_an_export_that_was_altered_is_refused(tmp_path: Path, tokenizer: Artifact, suffix: str) -> None:
    tokens = store(tmp_path / "one", {("train", "web", "a"): [[Document([1, 2], False)]]}, tokenizer)
    export(tokens, str(tmp_path / "out"))
    (prefix,) = pairs_in([str(tmp_path / "out")])
    path = prefix.with_name(f"tokens{suffix}")
    if suffix == ".parquet":
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    elif suffix == ".json":
        path.write_text("{}")
    else:
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(MegatronError):
        examine(prefix, tokenizer)


def test_another_tokenizer_than_the_exports_is_refused(tmp_path: Path, tokenizer: Artifact) -> None:
    tokens = store(tmp_path / "one", {("train", "web", "a"): [[Document([1, 2], False)]]}, tokenizer)
    export(tokens, str(tmp_path / "out"))
    other = Step("tokenizer", TokenizerConfig(vocabulary=VOCABULARY, seed=1), str(tmp_path))
    text = tokenizer.file("tokenizer").read_text() + "\n"
    other.put("tokenizer", ".json", lambda path: path.write_text(text))
    other.publish({"vocabulary": VOCABULARY})
    with pytest.raises(MegatronError, match="another tokenizer"):
        examine(pairs_in([str(tmp_path / "out")])[0], other.require())
