"""What depends on what: every step of the recipe with its identity, known before anything has run.

Pure: no Prefect, nothing is imported of the stages but their configurations. `run`, `status`, `lineage` and the report
all read this one table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from flows.preset import Preset, load_preset
from flows.request import Request
from tasks.artifact import NotReady, Step
from tasks.code import code_hash
from training.precision import PRECISIONS, decided, undecided


@dataclass(frozen=True)
class Dag:
    """The steps of one recipe, in the order in which they run."""

    sources: Step
    corpus: Step
    corpus_gate: Step
    scores: Step
    rewrites: Step
    rewrites_gate: Step
    tokenizer: Step
    mix: Step
    tokens: Step
    tokens_gate: Step
    base: Step
    dialogues: Step
    sft: Step
    rl: Step
    qat: Step
    release: Step
    evaluation: Step
    other: Dag | None = None
    """The same recipe in the other precision, where the preset leaves that open."""

    def steps(self) -> list[Step]:
        """Every step, in the order of the recipe."""
        return [step for field in fields(self) if isinstance(step := getattr(self, field.name), Step)]

    def curated(self) -> bool:
        """Whether the corpus has been published and its gate let it through."""
        try:
            return self.corpus.artifact() is not None and self.corpus_gate.artifact() is not None
        except NotReady:
            return False

    def earlier(self) -> list[Step]:
        """Sources and corpora of the snapshots before the newest, oldest first."""
        pairs = zip(self.sources.versions(), self.corpus.versions(), strict=True)
        return [step for pair in list(pairs)[:-1] for step in pair]

    def done(self) -> bool:
        """Whether every step has been published."""
        try:
            return all(step.artifact() is not None for step in self.steps())
        except NotReady:
            return False


def snapshots(sources: Callable[..., Step], pinned: int | None) -> Step:
    """The newest published snapshot of the sources (the first, published or not, where there is none), or the `pinned`
    one; `sources` makes the step that follows another. Raises NotReady where the pinned one does not exist."""
    newest = sources()
    while pinned is None or len(newest.versions()) <= pinned:
        try:
            following = sources(newest)
            exists = following.artifact() is not None
        except NotReady:
            exists = False  # the first has not been fetched: nothing follows it
        if not exists:
            break
        newest = following
    if pinned and len(newest.versions()) <= pinned:
        raise NotReady(
            f"sources.snapshot is {pinned} but the newest snapshot is {len(newest.versions()) - 1}: "
            "name one of those, or null for the newest"
        )
    return newest


def next_snapshot(plan: Dag, preset: Preset) -> Step:
    """The sources of the snapshot that follows the newest. Raises NotReady where the preset pins another."""
    if preset.sources.snapshot is not None:
        raise NotReady(
            f"sources.snapshot pins the corpus to snapshot {preset.sources.snapshot}: set it to null to refresh"
        )
    return replace(plan.sources, inputs=(plan.sources,))


def dag(request: Request, preset: Preset | None = None) -> Dag:
    """The recipe's steps for `request`, their precision decided: what their training was begun in under
    `request.root`, else what this machine multiplies fast."""
    p = preset or load_preset(request)
    plan = steps_of(request, p)
    if undecided(p):
        plan = in_precision(plan, precision_of(plan, p.execution.device)[0])
    return plan


def precision_of(plan: Dag, device: str) -> tuple[str, bool]:
    """What `auto` stands for in `plan`, which leaves it open, and whether its training was begun in that."""
    begun = begun_in(plan) if known(plan.base) else []
    if len(begun) == 1:
        return begun[0], True
    from model.precision import speed  # here, because torch takes a second and a half to import

    fast = speed(device).fast
    return fast, fast in begun


def known(step: Step) -> bool:
    """Whether the step has a fingerprint yet."""
    try:
        return bool(step.fingerprint)
    except NotReady:
        return False


def begun_in(plan: Dag) -> list[str]:
    """The precisions in which the training of `plan`, which leaves them open, has been begun or is done."""
    plans = {precision: _replaced(plan, precision) for precision in PRECISIONS}
    for pair in zip(*(found.steps() for found in plans.values()), strict=True):
        if len({step.fingerprint for step in pair}) > 1:  # the first stage on which the choice tells
            return [precision for precision, step in zip(plans, pair, strict=True) if step.under_way()]
    return []


def in_precision(plan: Dag, precision: str) -> Dag:
    """`plan` with `precision` wherever it says `auto`, and what follows from it; `other` has the other precision."""
    (other,) = (_replaced(plan, each) for each in PRECISIONS if each != precision)
    return replace(_replaced(plan, precision), other=other)


def _replaced(plan: Dag, precision: str) -> Dag:
    changed: dict[str, Any] = {}
    for step in plan.steps():
        config = decided(step.config, precision)
        inputs = tuple(changed.get(given.name, given) for given in step.inputs)
        if config is not step.config or any(new is not old for new, old in zip(inputs, step.inputs, strict=True)):
            changed[step.name] = replace(step, config=config, inputs=inputs)
    return replace(plan, **changed)


def steps_of(request: Request, p: Preset) -> Dag:
    """The steps as the preset has them: a precision that it leaves open stays open."""

    def step(name, config, code, *inputs, leaf=False):
        return Step(name, config, request.root, inputs, code_hash(*code.split()), leaf)

    sources = snapshots(partial(step, "sources", p.sources, "tasks.corpus.acquire", leaf=True), p.sources.snapshot)
    corpus: Step | None = None
    for snapshot in sources.versions():
        corpus = step("corpus", p.corpus, "tasks.corpus.curation", snapshot, *([corpus] if corpus else []))
    assert corpus is not None
    scores = step("scores", p.scores, "tasks.corpus.scoring.scores", corpus)
    rewrites = step("rewrites", p.rephrase, "tasks.rephrase.rewriting", corpus)
    tokenizer = step("tokenizer", p.tokenizer, "tasks.tokens.tokenizer", corpus)
    mix = step("mix", p.mix, "tasks.corpus.mix.mixing", corpus, scores, rewrites, tokenizer)
    tokens = step("tokens", p.tokens, "tasks.tokens.shards", corpus, rewrites, tokenizer, mix)
    base = step("base", p.pretrain, "training.pretrain", tokens, tokenizer)
    dialogues = step("dialogues", p.dialogues, "tasks.agentic.dialogues", tokenizer)
    sft = step("sft", p.sft, "training.sft", base, dialogues, tokenizer)
    rl = step("rl", p.rl, "training.rl.train", sft, dialogues, tokens, tokenizer)
    qat = step("qat", p.qat, "training.qat", rl, dialogues, tokenizer)
    release = step("release", p.release, "tasks.evaluate.release", qat, tokenizer)
    evaluation = step("evaluation", p.evaluate, "tasks.evaluate.evaluation", release, base, sft, rl, dialogues, tokens)

    # A gate depends on what it judges and nobody depends on a gate's identity: a stricter rule judges the same data
    # again, it does not make them anew. A flow may read on only when its gate has been published.
    gate = "expectations.gate"
    return Dag(
        sources=sources,
        corpus=corpus,
        corpus_gate=step("corpus-gate", p.gates.corpus, gate, corpus),
        scores=scores,
        rewrites=rewrites,
        rewrites_gate=step("rewrites-gate", p.gates.rewrites, gate, rewrites),
        tokenizer=tokenizer,
        mix=mix,
        tokens=tokens,
        tokens_gate=step("tokens-gate", p.gates.tokens, gate, tokens),
        base=base,
        dialogues=dialogues,
        sft=sft,
        rl=rl,
        qat=qat,
        release=release,
        evaluation=evaluation,
    )
