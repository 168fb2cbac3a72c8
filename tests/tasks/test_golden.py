"""The bytes of every stage that computes nothing by chance: the same inputs give them as long as VERSION stands.

Rewrites have theirs beside the tests of their stage. Training and evaluation have none: sums of another machine round
otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from model.config import Config
from model.transformer import Transformer
from tasks.agentic.config import CallsConfig, DialoguesConfig, TaskConfig, WorldsConfig
from tasks.agentic.synthesis.config import ToolsConfig
from tasks.artifact import Artifact, Step
from tasks.corpus.config import CorpusConfig, SourcesConfig
from tasks.corpus.mix.config import MixConfig
from tasks.corpus.scoring.config import ClassifierConfig, ScoresConfig, Selection
from tasks.evaluate.config import ReleaseConfig
from tasks.launch import Execution
from tasks.stage import make
from tasks.tokens.config import TokenizerConfig, TokensConfig
from tests.golden import Golden, assert_golden
from tests.tasks.corpus.capped import text
from tests.tasks.evaluate.conftest import publish_model, publish_tokenizer, small_model

GOLDEN: dict[str, Golden] = {
    "tasks.corpus.acquire": (6, "7a7e9d110354121e"),
    "tasks.corpus.curation": (9, "85d7032799766a6a"),
    "tasks.corpus.scoring.scores": (2, "904593ed2c7d5c0d"),
    "tasks.tokens.tokenizer": (2, "a33f630a0aaf93a4"),
    "tasks.corpus.mix.mixing": (1, "bc79980bbfd87462"),
    "tasks.tokens.shards": (1, "e17afcc450861ead"),
    "tasks.agentic.synthesis.tools": (1, "2f06b9d9670dbbee"),
    "tasks.agentic.dialogues": (12, "bfab14420a9ad5c1"),
    "tasks.evaluate.release": (10, "2894d3b2e002c23c"),
}
PART_OF = {"tasks.agentic.dialogues": "dialogues"}
"""A card has its fingerprint, which changes with every stage before."""
DIALOGUES = DialoguesConfig(
    tasks=(TaskConfig(family="addition", train=200, development=20, test=20),),
    calls=CallsConfig(train=100, development=4, test=4),
    worlds=WorldsConfig(train=4, development=1, test=1),
    synthetic=WorldsConfig(train=4, development=1, test=1),
    max_tokens=4096,
)
EXECUTION = Execution(workers=1, threads=1, device="cpu")


class Nothing(Config):
    """The configuration of a stage that this test stands in for."""


def documents(folder: Path) -> Path:
    """Web pages as JSON lines, a tenth of them copies; and a text with a person's address."""
    random = np.random.default_rng(5)
    rows = [{"text": text(random)} for _ in range(60)]
    rows += [*rows[:6], {"text": rows[6]["text"] + " It ends so."}]
    rows.append({"text": rows[7]["text"] + "\n\nWrite to jane.roe@mail.example.net for more of it, she answers."})
    folder.mkdir()
    pl.DataFrame(rows).write_ndjson(folder / "pages.jsonl")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The artifact of each module, of one small chain."""
    root = tmp_path_factory.mktemp("golden")
    folder = documents(root / "pages")
    source = {"name": "web", "kind": "folder", "path": str(folder), "domain": "web", "language": "en", "licence": "MIT"}
    found: dict[str, Artifact] = {}

    def stage(name: str, module: str, config: Config, *inputs: Step, **more: Any) -> Step:
        step = Step(name, config, str(root / "data"), inputs, module=module, **more)
        found[module] = make.fn(step, EXECUTION)
        return step

    scored = ClassifierConfig(
        bits=12, positives=Selection(domains=("web",)), negatives=Selection(rejected=("dedup", "quality"))
    )
    sources = stage("sources", "tasks.corpus.acquire", SourcesConfig(sources=[source]), leaf=True)
    corpus = stage("corpus", "tasks.corpus.curation", CorpusConfig(), sources)
    scores = stage("scores", "tasks.corpus.scoring.scores", ScoresConfig(classifier=scored), corpus)
    rewrites = Step("rewrites", Nothing(), str(root / "data"), (corpus,))
    again = pl.read_parquet(found["tasks.corpus.curation"].files("documents")).head(4)
    again = again.with_columns(source_id="id", style=pl.lit("plain"), id=pl.col("id").str.reverse())
    rewrites.put("rewrites/0", ".parquet", again.write_parquet, again.height)
    rewrites.publish({"documents": again.height})
    tokenizer = stage("tokenizer", "tasks.tokens.tokenizer", TokenizerConfig(vocabulary=700), corpus)
    mixed = MixConfig(buckets={"low": 0.5, "high": 2.0})
    mix = stage("mix", "tasks.corpus.mix.mixing", mixed, corpus, scores, rewrites, tokenizer)
    stage("tokens", "tasks.tokens.shards", TokensConfig(heldout_fraction=0.1), corpus, rewrites, tokenizer, mix)
    tools = stage("tools", "tasks.agentic.synthesis.tools", ToolsConfig(count=24, per_domain=3))
    stage("dialogues", "tasks.agentic.dialogues", DIALOGUES, tokenizer, tools)
    learned, network = publish_tokenizer(root / "data"), patterned(small_model())
    rl = publish_model(root / "data", "rl", network)
    stage("release", "tasks.evaluate.release", ReleaseConfig(), rl, learned)
    return found


@torch.no_grad()
def patterned(model: Transformer) -> Transformer:
    """Weights that every machine computes alike."""
    for name, tensor in model.state_dict().items():
        place = torch.arange(tensor.numel(), dtype=torch.float64)
        tensor.copy_(((place * 37 + len(name)) % 101 - 50).reshape(tensor.shape) / 1024)
    return model


@pytest.mark.parametrize("module", GOLDEN)
def test_the_same_inputs_give_the_bytes_that_this_version_gave(made: dict[str, Artifact], module: str) -> None:
    assert_golden(module, made[module], GOLDEN[module], PART_OF.get(module, ""))
