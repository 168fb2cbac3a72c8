"""Kimi K2's recipe: raw documents in, an agentic model out. Which data go where stands here, and nowhere else.

Every call is one stage: its name, the module that does its work, its literals, and the steps that it reads; it returns
its own step. The plan, `openk2 status`, lineage, the report, the Prefect flows and the inputs of training jobs all come
from this text. A new stage is a line here, and a module with a VERSION and a function `run` (training: a job).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line reads the names of the flows, and `openk2 --help` nothing of the presets
    from flows.graph import Stages
    from flows.preset import Preset

FLOWS = {
    "corpus": "Sources, extraction, quality rules, deduplication, gate; then every document's quality scored.",
    "rephrase": "Knowledge rewritten, mathematics as learning notes, each segment held to its source; gate.",
    "tokens": "Tokenizer, mix, shards with a held-out split; gate.",
    "pretrain": "MuonClip through the stages: warm-up, constant, cosine, annealing, long context with YaRN.",
    "posttrain": "Synthetic tools, dialogues, SFT and RL with verifiable rewards, both with INT4 experts.",
    "release": "bf16 and INT4 checkpoints in Kimi K2's layout, verified and measured.",
    "evaluate": "Suites of benchmarks on every checkpoint that is there; gate on the release.",
}
"""Stages that are run together, as one Prefect flow each; in this order they are the whole recipe."""


def recipe(p: Preset, stage: Stages) -> None:
    """Every stage of a preset, in the order in which they run."""
    stage.flow("corpus")
    corpus = None
    for sources in stage.snapshots("sources", "tasks.corpus.acquire", p.sources):  # each refresh adds one
        corpus = stage("corpus", "tasks.corpus.curation", p.corpus, sources, corpus)
    corpus = stage.gate(p.gates.corpus, corpus)
    scores = stage("scores", "tasks.corpus.scoring.scores", p.scores, corpus)

    stage.flow("rephrase")
    rewrites = stage("rewrites", "tasks.rephrase.rewriting", p.rephrase, corpus)
    rewrites = stage.gate(p.gates.rewrites, rewrites)

    stage.flow("tokens")
    tokenizer = stage("tokenizer", "tasks.tokens.tokenizer", p.tokenizer, corpus)
    mix = stage("mix", "tasks.corpus.mix.mixing", p.mix, corpus, scores, rewrites, tokenizer)
    tokens = stage("tokens", "tasks.tokens.shards", p.tokens, corpus, rewrites, tokenizer, mix)
    tokens = stage.gate(p.gates.tokens, tokens)

    stage.flow("pretrain")
    base = stage("base", "training.pretrain", p.pretrain, tokens, tokenizer)

    stage.flow("posttrain")
    tools = stage("tools", "tasks.agentic.synthesis.tools", p.tools, leaf=bool(p.tools.servers))
    tools = stage.gate(p.gates.tools, tools)
    if p.real_tools.servers:  # a leaf that nothing reads: what runs on a machine, and what time it is there
        stage("real-tools", "tasks.agentic.mcp.recording", p.real_tools, leaf=True)
    dialogues = stage("dialogues", "tasks.agentic.dialogues", p.dialogues, tokenizer, tools)
    dialogues = stage.gate(p.gates.dialogues, dialogues)
    sft = stage("sft", "training.sft", p.sft, base, dialogues, tokens, tokenizer)
    rl = stage("rl", "training.rl.train", p.rl, sft, dialogues, tokens, tokenizer)

    stage.flow("release")
    release = stage("release", "tasks.evaluate.release", p.release, rl, tokenizer)
    stage("evaluation", "tasks.evaluate.evaluation", p.evaluate, release, base, sft, rl, dialogues, tokens)

    stage.flow("evaluate")
    benchmarks = stage("benchmarks", "tasks.evaluate.suites.sets", p.evaluate.suites, corpus, rewrites)
    for model in (base, sft, rl, release):
        read = (model, benchmarks, tokenizer, tokens)
        suites = stage(f"{model.name}-suites", "tasks.evaluate.suites.measuring", p.evaluate.suites, *read)
    stage.gate(p.gates.suites, suites)
