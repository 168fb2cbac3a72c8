"""The shards: every document back from its span, the held-out split, resumption after kills, bad input."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from tasks.artifact import Artifact, ArtifactError, Step
from tasks.corpus.executor import Processes, Serial, WorkerError
from tasks.tokens import tokenizer
from tasks.tokens.config import TokenizerConfig, TokensConfig
from tasks.tokens.shards import batches_of, build
from tasks.tokens.tokenizer import decode_bytes, encode_texts
from tests.endless import without_end
from tests.shards import Nothing
from training.loader import Loader
from training.shards import ShardError, TokenShards, shard_path

from .corpus import documents, publish, record, rewrites_of

Made = tuple[Step, Artifact]
CONFIG = TokensConfig(heldout_fraction=0.2, shard_bytes=8192, batch_bytes=20_000)


def stage(root: Path, config: TokensConfig, corpus: Made, rewrites: Made, learned: Made) -> tuple[Step, Artifact]:
    step = Step("tokens", config, str(root), (corpus[0], rewrites[0], learned[0]))
    return step, step.artifact() or build(step, corpus[1], rewrites[1], learned[1])


def spans(tokens: Artifact) -> dict[str, dict[str, object]]:
    """Document id -> its index row, its tokens, split and domain."""
    found: dict[str, dict[str, object]] = {}
    for shard in TokenShards(tokens.uri):
        held = np.fromfile(shard.file.local, "<u4")
        assert shard.tokens == len(held)
        end = 0
        for row in pq.read_table(shard.index.local).to_pylist():
            assert row["start"] == end < row["end"]
            assert row["source"] == shard.source
            end = row["end"]
            assert row["id"] not in found
            place = {"split": shard.split, "domain": shard.domain}
            found[row["id"]] = row | place | {"tokens": held[row["start"] : end].tolist()}
        assert end == len(held)
    return found


@pytest.fixture(scope="module")
def tokens(root: Path, corpus: Made, rewrites: Made, learned: Made) -> Artifact:
    return stage(root, CONFIG, corpus, rewrites, learned)[1]


def inputs() -> list[dict[str, str]]:
    rows = documents(60)
    return [row for part in rows.values() for row in part] + rewrites_of(rows["knowledge"] + rows["math"][:20])


def test_every_document_comes_back_from_its_span(tokens: Artifact, bpe: Tokenizer) -> None:
    found = spans(tokens)
    end = bpe.token_to_id("[EOS]")
    for row in inputs():
        span = found.pop(row["id"])
        *ids, last = span["tokens"]
        assert last == end == tokens.statistics["end_of_document"]
        assert decode_bytes(bpe, ids).decode() == row["text"]
        assert (span["domain"], span["source"], span["licence"]) == (row["domain"], row["source"], "CC0-1.0")
        assert (span["rewrite"], span["source_id"]) == ("source_id" in row, row.get("source_id"))
    assert not found


def test_no_shard_is_larger_than_configured(tokens: Artifact) -> None:
    sizes = [shard.file.bytes for shard in TokenShards(tokens.uri)]
    assert max(sizes) <= CONFIG.shard_bytes
    assert len(sizes) > 16  # so that the limit was met


def test_rewrites_go_where_their_source_goes(tokens: Artifact) -> None:
    found = spans(tokens)
    splits = {name: row["split"] for name, row in found.items()}
    rewritten = [(splits[str(row["source_id"])], row["split"]) for row in found.values() if row["rewrite"]]
    assert len(rewritten) == 80
    assert all(one == other for one, other in rewritten)
    assert ("heldout", "heldout") in rewritten
    assert 0.1 < sum(split == "heldout" for split in splits.values()) / len(splits) < 0.3


def test_which_documents_are_held_out_follows_fraction_and_seed(
    root: Path, corpus: Made, rewrites: Made, learned: Made, tokens: Artifact
) -> None:
    def held(config: TokensConfig) -> set[str]:
        rows = spans(stage(root, config, corpus, rewrites, learned)[1])
        return {name for name, row in rows.items() if row["split"] == "heldout"}

    base = held(CONFIG)
    assert held(CONFIG.model_copy(update={"heldout_fraction": 0.0})) == set()
    assert base < held(CONFIG.model_copy(update={"heldout_fraction": 0.5}))  # a larger fraction keeps those held out
    assert held(CONFIG.model_copy(update={"seed": 1})) != base


def test_statistics_are_those_of_the_bytes(tokens: Artifact) -> None:
    found, statistics = spans(tokens), tokens.statistics
    texts = {row["id"]: row["text"] for row in inputs()}
    for split, stated in (("train", statistics["by_domain"]), ("heldout", statistics["heldout"])):
        for domain in ("code", "knowledge", "math", "web"):
            rows = {name: row for name, row in found.items() if (row["split"], row["domain"]) == (split, domain)}
            count = sum(len(row["tokens"]) for row in rows.values())
            size = sum(len(texts[name].encode()) for name in rows)
            assert stated[domain] == {
                "tokens": count,
                "documents": len(rows),
                "copies": len(rows),
                "bytes": size,
                "bytes_per_token": round(size / count, 4),
            }
    train = [row for row in found.values() if row["split"] == "train"]
    assert statistics["tokens"] == sum(len(row["tokens"]) for row in train)
    assert statistics["documents"] == len(train)
    assert statistics["rewrites"]["documents"] == sum(bool(row["rewrite"]) for row in train)
    assert sum(row["tokens"] for row in statistics["by_source"].values()) == statistics["tokens"]
    assert sum(statistics["shards"].values()) == len(list(TokenShards(tokens.uri)))
    assert statistics["vocabulary"] == 700
    assert statistics["empty"] == 0


def test_the_loader_reads_what_the_stage_wrote(tokens: Artifact, bpe: Tokenizer) -> None:
    loader = Loader(tokens.uri, "train", {"math": 0.5, "web": 0.5}, seed=0, sequence_length=64)
    batch = loader.batch(0, 8)
    found = spans(tokens)
    for sample in range(8):
        ids = batch.tokens_BS[sample].tolist()
        for span in loader.describe(sample):
            row = found[span.document["id"]]
            inside = span.start - int(row["start"])
            piece = ids[span.first : span.first + span.end - span.start]
            assert piece == row["tokens"][inside : inside + len(piece)]


def content(artifact: Artifact) -> dict[str, str]:
    return {shard.key: shard.file.sha256 + shard.index.sha256 for shard in TokenShards(artifact.uri)}


def test_bytes_do_not_depend_on_threads(
    tmp_path: Path, corpus: Made, rewrites: Made, learned: Made, tokens: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    for parallel in ("false", "true"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
        step = Step("tokens", CONFIG, str(tmp_path / parallel), (corpus[0], rewrites[0], learned[0]))
        assert content(build(step, corpus[1], rewrites[1], learned[1])) == content(tokens)


@pytest.mark.parametrize("files", [1, 30])
def test_a_killed_run_goes_on_to_the_same_bytes(
    tmp_path: Path, corpus: Made, rewrites: Made, learned: Made, tokens: Artifact, files: int
) -> None:
    """SIGKILL after some files, then the same command: the same parts, and finished batches are not done again."""
    step = Step("tokens", CONFIG, str(tmp_path), (corpus[0], rewrites[0], learned[0]))
    command = [
        sys.executable,
        "-c",
        "import sys; from tests.tasks.tokens.test_shards import resume; resume(*sys.argv[1:])",
        *(str(tmp_path), corpus[0].root, corpus[1].uri, rewrites[1].uri, learned[1].uri),
    ]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3], env=os.environ | {"RAYON_NUM_THREADS": "1"})
    folder = Path(step.uri) / "parts"
    deadline = time.monotonic() + 500
    while len([path for path in folder.rglob("*.*") if path.is_file()]) < files and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert step.artifact() is None, "the run ended before it could be killed"
    listed = [row for part in step.recorded("batches") for row in part.statistics["shards"]]
    paths = [Path(step.uri, shard_path(row["key"], row["sha256"])) for row in listed]
    done = {path: path.stat().st_mtime_ns for path in paths}
    again = build(step, corpus[1], rewrites[1], learned[1])
    assert content(again) == content(tokens)
    assert again.statistics == tokens.statistics
    assert done == {path: path.stat().st_mtime_ns for path in paths}


@pytest.mark.parametrize("folder", ["shards", "index", "blocks"])
def test_a_shard_that_is_gone_is_written_again(
    tmp_path: Path, corpus: Made, rewrites: Made, learned: Made, tokens: Artifact, folder: str
) -> None:
    step = Step("tokens", CONFIG, str(tmp_path), (corpus[0], rewrites[0], learned[0]))
    build(step, corpus[1], rewrites[1], learned[1])
    Path(step.uri, "manifest.json").unlink()
    next(path for path in Path(step.uri, "parts", folder).rglob("*") if path.is_file()).unlink()
    with pytest.raises(ArtifactError, match=r"lacks 1 of its .* run the same command again"):
        build(step, corpus[1], rewrites[1], learned[1])
    again = build(step, corpus[1], rewrites[1], learned[1])
    assert content(again) == content(tokens)
    TokenShards(again.uri).verify()
    accounts = again.manifest["accounts"]
    assert accounts["in"] == accounts["out"] + accounts["rejected"] + accounts["dropped"]


def resume(root: str, data: str, corpus: str, rewrites: str, learned: str) -> None:
    """The stage in a process of its own, slowed so that a kill lands between records, and without an end."""
    artifacts = [Artifact.load(uri) for uri in (corpus, rewrites, learned)]
    config = artifacts[2].manifest["config"]
    above = Step("corpus", Nothing(), data)
    steps = (above, Step("rewrites", Nothing(), data), Step("tokenizer", TokenizerConfig(**config), data, (above,)))
    step = Step("tokens", CONFIG, root, steps)
    store = step.store

    def slow(*arguments, **named):
        time.sleep(0.02)
        return store(*arguments, **named)

    object.__setattr__(step, "store", slow)
    without_end(step.name)
    build(step, *artifacts)


def test_documents_of_no_tokens_and_huge_ones(root: Path, tmp_path: Path, learned: Made, bpe: Tokenizer) -> None:
    huge = "".join(f"line {number} of a very long log, value {number * number}\n" for number in range(60_000))
    flat = "x" * 1_500_000  # no line end to cut at
    rows = [record("", "web"), record(huge, "web"), record(flat, "web"), record("[EOS] and <|im_end|>\n", "web")]
    corpus = publish(tmp_path, "corpus", "documents", {"0": rows, "1": []} | {"2": [record("tail", "web")]})
    nothing = publish(tmp_path, "rewrites", "rewrites", {})
    config = TokensConfig(heldout_fraction=0, shard_bytes=4096, batch_bytes=1)
    _, artifact = stage(tmp_path, config, corpus, nothing, learned)
    found = spans(artifact)
    assert artifact.statistics["empty"] == 1
    assert len(found) == 4
    for row in rows[1:]:
        *ids, _ = found[row["id"]]["tokens"]
        assert decode_bytes(bpe, ids).decode() == row["text"]
    assert found[rows[1]["id"]]["tokens"][:-1] == encode_texts(bpe, [huge], piece=10**9)[0]
    assert TokenShards(artifact.uri).splits == ["train"]
    Loader(artifact.uri, "train", {"web": 1}, 0, 4096).batch(0, 4)


def test_a_document_of_ten_million_tokens_stays_whole(tmp_path: Path, learned: Made, bpe: Tokenizer) -> None:
    text = "70" * 5_000_000  # every digit is a token
    corpus = publish(tmp_path, "corpus", "documents", {"0": [record("a", "web"), record(text, "web")]})
    config = TokensConfig(heldout_fraction=0, shard_bytes=4096)
    _, artifact = stage(tmp_path, config, corpus, publish(tmp_path, "rewrites", "rewrites", {}), learned)
    _, shard = TokenShards(artifact.uri)
    seven, nought, end = (bpe.token_to_id(name) for name in ("7", "0", "[EOS]"))
    assert shard.tokens == 10_000_001
    assert (shard.tokens_T[:-1:2] == seven).all()
    assert (shard.tokens_T[1:-1:2] == nought).all()
    assert shard.tokens_T[-1] == end


def test_workers_write_the_same_bytes(
    tmp_path: Path, corpus: Made, rewrites: Made, learned: Made, tokens: Artifact
) -> None:
    config = CONFIG.model_copy(update={"batch_bytes": 1})
    made = []
    for name, executor in (("one", Serial()), ("two", Processes(2))):
        step = Step("tokens", config, str(tmp_path / name), (corpus[0], rewrites[0], learned[0]))
        made.append(build(step, corpus[1], rewrites[1], learned[1], executor=executor))
    assert content(made[0]) == content(made[1])
    assert made[0].statistics == made[1].statistics
    assert made[0].statistics["tokens"] == tokens.statistics["tokens"]


def test_sources_have_streams_of_their_own(tmp_path: Path, learned: Made) -> None:
    names = ["plain", "Ünusual / name", "ünusual / name", "x" * 300, "../up", "", "a.b", "a-b"]
    rows = [record(f"text of {name} {n}", "web") | {"source": name} for name in names for n in range(3)]
    corpus = publish(tmp_path, "corpus", "documents", {"0": rows})
    config = TokensConfig(heldout_fraction=0)
    _, artifact = stage(tmp_path, config, corpus, publish(tmp_path, "rewrites", "rewrites", {}), learned)
    streams = TokenShards(artifact.uri).streams("train")
    assert {source for _, source in streams} == set(names)
    assert len({shard.key.rpartition("/")[0] for stream in streams.values() for shard in stream}) == len(names)
    for (_, source), (shard,) in streams.items():
        index = pa.Table.from_batches(shard.rows())
        assert index["source"].unique().to_pylist() == [source]
        assert Path(artifact.uri) in shard.file.local.resolve().parents
        assert index["id"].to_pylist() == [row["id"] for row in rows if row["source"] == source]


def test_on_s3_as_on_a_disk(
    tmp_path: Path,
    bucket: str,
    corpus: Made,
    rewrites: Made,
    learned: Made,
    tokens: Artifact,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path))
    step = Step("tokens", CONFIG, bucket, (corpus[0], rewrites[0], learned[0]))
    with pytest.raises(ShardError, match=r"manifest\.json does not exist"):
        TokenShards(step.uri)
    store = Step.store

    def interrupted(self: Step, key: str, *more: object) -> object:
        if key.startswith("shards/") and "000001-" in key:
            raise ConnectionError("the bucket is gone")
        return store(self, key, *more)

    with monkeypatch.context() as broken:
        broken.setattr(Step, "store", interrupted)
        with pytest.raises(ConnectionError):
            build(step, corpus[1], rewrites[1], learned[1])
    assert step.artifact() is None
    remote = build(step, corpus[1], rewrites[1], learned[1])
    assert content(remote) == content(tokens)
    assert remote.statistics == tokens.statistics
    here = Loader(tokens.uri, "train", {"math": 1}, 0, 32).batch(0, 8)
    assert Loader(remote.uri, "train", {"math": 1}, 0, 32).batch(0, 8).tokens_BS.equal(here.tokens_BS)


def test_a_disk_that_fills_leaves_nothing_that_is_read(
    tmp_path: Path, corpus: Made, rewrites: Made, learned: Made, tokens: Artifact
) -> None:
    """Writes fail at some size, as they do where a disk or a quota is full; with room the same command goes on."""
    step = Step("tokens", CONFIG, str(tmp_path), (corpus[0], rewrites[0], learned[0]))
    code = (
        "import resource, sys; from tests.tasks.tokens.test_shards import resume; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000)); resume(*sys.argv[1:])"
    )
    uris = (str(tmp_path), corpus[0].root, corpus[1].uri, rewrites[1].uri, learned[1].uri)
    done = subprocess.run(
        [sys.executable, "-c", code, *uris], cwd=Path(__file__).parents[3], stderr=subprocess.PIPE, text=True
    )
    assert done.returncode
    assert "OSError: [Errno 27] File too large: '" in done.stderr
    assert step.artifact() is None
    assert not step.recorded("batches")
    with pytest.raises(ShardError, match=r"manifest\.json does not exist"):
        TokenShards(step.uri)
    assert content(build(step, corpus[1], rewrites[1], learned[1])) == content(tokens)


def copied(tokens: Artifact, folder: Path) -> Path:
    return Path(shutil.copytree(tokens.uri, folder / "tokens"))


def test_what_the_table_does_not_list_is_never_read(tmp_path: Path, tokens: Artifact) -> None:
    folder = copied(tokens, tmp_path)
    shard = next(iter(TokenShards(folder)))
    for name in ("999999-000.0123456789ab.bin", "000000-000.0123456789ab.bin"):
        shard.file.local.with_name(name).write_bytes(b"\1\0\0")
    assert content(tokens) == {shard.key: shard.file.sha256 + shard.index.sha256 for shard in TokenShards(folder)}
    TokenShards(folder).verify()


@pytest.mark.parametrize("what", ["shard", "index", "table"])
@pytest.mark.parametrize("how", ["cut", "altered", "missing"])
def test_damaged_files_are_named(tmp_path: Path, tokens: Artifact, what: str, how: str) -> None:
    folder = copied(tokens, tmp_path)
    shard = list(TokenShards(folder))[3]
    (table,) = folder.glob("parts/shards.*.parquet")
    path = {"shard": shard.file.local, "index": shard.index.local, "table": table}[what]
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if how == "cut" else bytes([*data[:5], data[5] ^ 1, *data[6:]]))
    said = {"cut": f"has {len(data) - 1} bytes", "altered": "was altered", "missing": "is missing"}[how]
    with pytest.raises(ShardError, match=rf"{re.escape(path.name)} {said}"):
        TokenShards(folder).verify()


def test_a_table_that_is_none_is_refused(tmp_path: Path, tokens: Artifact) -> None:
    rows = pq.read_table(next(Path(tokens.uri).glob("parts/shards.*.parquet")))
    for name, table, said in (
        ("columns", rows.drop_columns(["source"]), "other columns"),
        ("order", rows.take(list(range(rows.num_rows))[::-1]), "order of keys"),
        ("twice", pa.concat_tables([rows.slice(0, 1), rows]), "each once"),
    ):
        step = Step("tokens", Nothing(), str(tmp_path / name))
        step.put("shards", ".parquet", lambda path, table=table: pq.write_table(table, path))
        artifact = step.publish(tokens.statistics)
        with pytest.raises(ShardError, match=said):
            TokenShards(artifact.uri)
    older = Step("tokens", Nothing(), str(tmp_path / "older")).publish(tokens.statistics)
    with pytest.raises(ShardError, match="lists no table of shards"):
        TokenShards(older.uri)


class Broken:
    """Workers that die at once."""

    def map(self, function: object, jobs: object) -> Iterator[tuple[str, object]]:
        raise WorkerError("a worker died")


def test_a_tokenizer_that_is_not_the_one_of_the_first_attempt_is_refused(
    tmp_path: Path, corpus: Made, rewrites: Made, learned: Made
) -> None:
    step = Step("tokens", CONFIG, str(tmp_path), (corpus[0], rewrites[0], learned[0]))
    with pytest.raises(WorkerError):
        build(step, corpus[1], rewrites[1], learned[1], executor=Broken())
    other = Step("tokenizer", TokenizerConfig(vocabulary=600), str(tmp_path), (corpus[0],))
    with pytest.raises(ArtifactError, match=r"was begun with another tokenizer\.json"):
        build(step, corpus[1], rewrites[1], tokenizer.build(other, corpus[1]))


def test_a_begin_token_opens_documents_where_asked(
    root: Path, corpus: Made, rewrites: Made, learned: Made, bpe
) -> None:
    _, artifact = stage(root, CONFIG.model_copy(update={"begin_documents": True}), corpus, rewrites, learned)
    assert {row["tokens"][0] for row in spans(artifact).values()} == {bpe.token_to_id("[BOS]")}


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("name", ["[EOS]", "<|im_system|>"])
def test_a_tokenizer_that_finds_a_control_token_in_text_is_not_used(
    tmp_path: Path, learned: Made, name: str, begin: bool
) -> None:
    text = json.loads(learned[1].file("tokenizer").read_text())
    for token in text["added_tokens"]:
        token["special"] = token["content"] != name
    step = Step("tokenizer", TokenizerConfig(vocabulary=700), str(tmp_path))
    step.put("tokenizer", ".json", lambda path: path.write_text(json.dumps(text)))
    spoiled = step, step.publish(learned[1].statistics)
    corpus = publish(tmp_path, "corpus", "documents", {"0": [record("hello", "web"), record(f"{name} hello", "web")]})
    nothing = publish(tmp_path, "rewrites", "rewrites", {})
    config = CONFIG.model_copy(update={"begin_documents": begin})
    with pytest.raises(ArtifactError, match=rf"has {re.escape(name)} inside"):
        stage(tmp_path, config, corpus, nothing, spoiled)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"domain": "a/b"}, "domain 'a/b'"),
        ({"text": None}, "no text"),
        ({"licence": None}, "no licence"),
    ],
)
def test_documents_that_cannot_be_tokenised_are_named(tmp_path: Path, learned: Made, change, said) -> None:
    row = record("some text", "web")
    corpus = publish(tmp_path, "corpus", "documents", {"0": [record("other text", "web"), row]})
    table = pq.read_table(corpus[1].files("documents")[0]).to_pylist()
    table[1] |= change
    spoiled = Step("corpus", Nothing(), str(tmp_path / "spoiled"))
    spoiled.put("documents/0", ".parquet", lambda path: pq.write_table(pa.Table.from_pylist(table), path), 2)
    made = (spoiled, spoiled.publish({}))
    nothing = publish(tmp_path, "rewrites", "rewrites", {})
    with pytest.raises(ArtifactError, match=rf"{row['id']}' has (the )?{said}"):
        stage(tmp_path, CONFIG, made, nothing, learned)


def test_a_missing_column_and_an_empty_corpus_are_said(tmp_path: Path, learned: Made) -> None:
    step = Step("corpus", Nothing(), str(tmp_path))
    step.put("documents/0", ".parquet", lambda path: pq.write_table(pa.table({"id": ["a"], "text": ["b"]}), path), 1)
    made = (step, step.publish({}))
    nothing = publish(tmp_path, "rewrites", "rewrites", {})
    with pytest.raises(ArtifactError, match="no column 'source'"):
        stage(tmp_path, CONFIG, made, nothing, learned)
    bare = publish(tmp_path / "bare", "corpus", "documents", {})
    with pytest.raises(ArtifactError, match="no documents"):
        stage(tmp_path / "bare", CONFIG, bare, nothing, learned)


def test_batches_are_consecutive_parts_and_hold_every_one_once(corpus: Made, rewrites: Made) -> None:
    every = [("documents", p.key) for p in corpus[1].parts("documents")] + [
        ("rewrites", p.key) for p in rewrites[1].parts("rewrites")
    ]
    for size in (1, 20_000, 10**9):
        batches = batches_of(CONFIG.model_copy(update={"batch_bytes": size}), corpus[1], rewrites[1])
        assert [(batch.group, part.key) for batch in batches for part in batch.parts] == every
        assert [batch.number for batch in batches] == list(range(len(batches)))
        assert all(len(batch.parts) == 1 or batch.bytes <= size for batch in batches)
    assert json.dumps([batch.key for batch in batches]) == '["batches/000000", "batches/000001"]'
