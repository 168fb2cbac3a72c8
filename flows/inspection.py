"""`openk2 inspect`: which dataset and which rule are meant, found, and shown in the terminal or written as a page."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from flows.calibration import asking
from flows.errors import near
from flows.preset import Preset, load_preset
from flows.request import Request
from flows.steps import graph
from flows.terminal import shown
from model import storage
from tasks.artifact import Artifact
from tasks.corpus.curation import attempted
from tasks.report import html
from tasks.report.blocks import Document, Section
from tasks.report.inspect.corpus import kept, overview
from tasks.report.inspect.corpus import page as corpus
from tasks.report.inspect.corpus.rejects import Selection
from tasks.report.inspect.rewrites import page as rewrites
from tasks.report.inspect.rewrites import recognition
from tasks.report.inspect.rewrites.attempts import Selection as Attempts
from tasks.report.inspect.rewrites.attempts import known, survey
from tasks.report.inspect.rewrites.whole import documents
from tasks.report.inspect.rollouts import page as rollouts
from tasks.report.inspect.rollouts.responses import GROUP, environments, read
from tasks.report.rejects import STAGES
from tasks.report.terminal import show as render

DATASETS = {"corpus": "corpus", "rewrites": "rewrites", "rollouts": "rl"}
"""What can be inspected, and the step that it belongs to; the first is meant where none is named. No rule may have one
of these names."""


OPTIONS = {
    "corpus": ("stage", "source", "language", "kept"),
    "rewrites": ("accepted", "style", "domain", "document", "recognise"),
    "rollouts": ("environment", "document"),
}
"""By what a dataset's rows are chosen: the fields of `Wanted` that no other dataset has a use for."""


class InspectError(ValueError):
    """A dataset, a rule or a stage that is not there; the message lists what is."""


@dataclass(frozen=True)
class Wanted:
    """What to look at."""

    words: tuple[str, ...] = ()
    """`[DATASET] [RULE] [PATH.html]`; the path, which may stand anywhere, only with `html`."""
    stage: str = ""
    source: str = ""
    language: str = ""
    count: int = 5
    uri: str = ""
    """A published artifact other than the preset's own."""
    html: bool = False
    """Write a page instead of printing."""
    kept: bool = False
    """Kept documents nearest to the threshold instead of dropped ones."""
    accepted: bool = False
    """Of rewrites: accepted segments instead of refused ones."""
    style: str = ""
    domain: str = ""
    document: str = ""
    """Of rewrites: one document whole, by its id or a rewrite's. Of rollouts: one prompt, by its id."""
    recognise: int = 0
    """Of rewrites: so many accepted ones of each style, of which the judge is asked which style they have."""
    environment: str = ""
    """Of rollouts: only this environment."""

    @property
    def dataset(self) -> str:
        """Which of DATASETS is meant."""
        return next((word for word in self._named[:1] if word in DATASETS), next(iter(DATASETS)))

    @property
    def path(self) -> str:
        """Where the page goes; empty for its usual place."""
        return next((word for word in self.words if self.html and word.endswith(".html")), "")

    @property
    def _named(self) -> tuple[str, ...]:
        return tuple(word for word in self.words if word != self.path)

    @property
    def rule(self) -> str:
        """The rule that is named, or ''. Raises InspectError where there are several."""
        rest = self._named[1:] if self._named[:1] and self._named[0] in DATASETS else self._named
        if len(rest) > 1:
            raise InspectError(f"'{' '.join(rest)}' is more than one rule: say `openk2 inspect [DATASET] [RULE]`")
        return rest[0] if rest else ""


def show(request: Request, wanted: Wanted, console: Console) -> str | None:
    """Print the overview, or one rule's samples; or write the page (to `{root}/inspect.html`, of other datasets
    `{root}/DATASET.html`, where no path is given) and return where it lies."""
    own = OPTIONS[wanted.dataset]
    for name in sorted({each for names in OPTIONS.values() for each in names}.difference(own)):
        if getattr(wanted, name):
            of = " and ".join(dataset for dataset, names in OPTIONS.items() if name in names)
            takes = ", ".join(f"--{each}" for each in own)
            raise InspectError(f"--{name} is for {of}: {wanted.dataset} takes {takes}")
    shown = {"corpus": _corpus, "rewrites": _rewrites, "rollouts": _rollouts}[wanted.dataset]
    return shown(request, _artifact(request, wanted, console), wanted, console)


def _corpus(request: Request, artifact: Artifact, wanted: Wanted, console: Console) -> str | None:
    _known(artifact, wanted)
    selection = Selection(
        wanted.rule, wanted.stage, wanted.source, wanted.language, overview.declared_languages(artifact)
    )
    if wanted.kept:
        if not wanted.rule or wanted.html:
            raise InspectError("--kept shows the kept documents nearest to one rule: `openk2 inspect RULE --kept`")
        samples, judged = kept.nearest(artifact, wanted.rule, selection, wanted.count)
        render(console, corpus.kept_section(wanted.rule, samples, judged))
        return None
    if wanted.html:
        page = corpus.page(artifact, selection, wanted.count)
        if page is None:
            raise InspectError(_unknown(artifact, wanted))
        return _write(wanted.path or f"{request.root.rstrip('/')}/inspect.html", page)
    shown = (
        corpus.rule_section(artifact, selection, wanted.count) if wanted.rule else corpus.overview(artifact, selection)
    )
    if shown is None:
        raise InspectError(_unknown(artifact, wanted))
    render(console, shown)
    return None


def _rewrites(request: Request, artifact: Artifact, wanted: Wanted, console: Console) -> str | None:
    if not artifact.parts("segments"):
        raise InspectError(f"{artifact.uri} lists no attempts at segments: run its stage again")
    target = wanted.path or f"{request.root.rstrip('/')}/rewrites.html"
    if wanted.recognise:
        if any((wanted.rule, wanted.accepted, wanted.style, wanted.domain, wanted.document, wanted.html)):
            raise InspectError("--recognise asks about rewrites of every style: leave out everything beside it")
        render(console, _recognised(request, artifact, wanted.recognise))
        return None
    if wanted.document:
        if wanted.rule or wanted.accepted or wanted.domain:
            raise InspectError("--document shows one document whole: leave out the check, --accepted and --domain")
        found = rewrites.whole_document(artifact, documents(artifact, wanted.document, wanted.style))
        if wanted.html:
            return _write(target, found)
        render(console, found, whole=True)
        return None
    if wanted.rule and wanted.accepted:
        raise InspectError(f"--accepted shows what every check let through: leave out '{wanted.rule}'")
    _attempted(artifact, wanted)
    selection = Attempts(wanted.rule, wanted.style, wanted.domain)
    if wanted.html:
        return _write(target, rewrites.page(artifact, selection, wanted.count, wanted.accepted))
    if wanted.rule:
        render(console, rewrites.check_section(artifact, selection, wanted.count))
    elif wanted.accepted:
        render(console, rewrites.accepted_section(artifact, selection, wanted.count))
    else:
        render(console, rewrites.overview(artifact, selection))
    return None


def _recognised(request: Request, artifact: Artifact, count: int) -> Section:
    preset = load_preset(request)
    config = preset.rephrase.alignment.judge
    if config is None:
        raise InspectError(
            "--recognise asks a language model, and none is configured: add `--set 'rephrase.alignment.judge={engine: "
            "endpoint, model: NAME}' --set execution.judge_url=URL`"
        )
    texts = recognition.sampled(artifact, count)
    with shown(Console(stderr=True)), asking(config, preset.execution, request.root) as (ask, slots):
        if (there := len({style for style, _ in texts})) < 2:
            raise InspectError(f"the accepted rewrites have {there} style: to recognise one there must be two at least")
        guesses = recognition.recognised(texts, ask, slots)
    return recognition.section(guesses, config.model or config.engine)


def _rollouts(request: Request, artifact: Artifact, wanted: Wanted, console: Console) -> str | None:
    if not artifact.parts(GROUP):
        raise InspectError(f"{artifact.uri} lists no rollouts: rl.record.every is 0, or an earlier version made it")
    if wanted.rule and wanted.rule not in rollouts.known():
        raise InspectError(f"'{wanted.rule}' is no choice of rollouts: {near(wanted.rule, rollouts.known())}")
    files = artifact.files(GROUP)
    responses = read(files, wanted.environment, wanted.document)
    if not responses:
        there = environments(read(files))
        if wanted.environment and wanted.environment not in there:
            raise InspectError(f"no response in '{wanted.environment}' is recorded: {near(wanted.environment, there)}")
        raise InspectError(f"no response of a prompt '{wanted.document}' is recorded: transcripts give its id")
    if wanted.html:
        target = wanted.path or f"{request.root.rstrip('/')}/rollouts.html"
        return _write(target, rollouts.page(artifact, responses, wanted.rule, wanted.count))
    if wanted.document:
        render(console, rollouts.prompted(responses, wanted.count))
    elif wanted.rule:
        render(console, rollouts.section(responses, wanted.rule, wanted.count))
    else:
        render(console, rollouts.overview(artifact, responses))
    return None


def _attempted(artifact: Artifact, wanted: Wanted) -> None:
    """Refuse a style, a domain or a check that no attempt has, rather than show nothing of it."""
    everything = survey(artifact, Attempts())
    for name, there in (("style", list(everything.by(0))), ("domain", list(everything.by(1)))):
        asked = getattr(wanted, name)
        if asked and asked not in there:
            raise InspectError(f"nothing was rewritten in the {name} '{asked}': {near(asked, there)}")
    checks = known(everything)
    if wanted.rule and wanted.rule not in checks:
        raise InspectError(f"no check is called '{wanted.rule}': {near(wanted.rule, checks)}")


def _artifact(request: Request, wanted: Wanted, console: Console) -> Artifact:
    name = DATASETS[wanted.dataset]
    if wanted.uri:
        artifact = Artifact.load(wanted.uri.rstrip("/"))
        if artifact.name != name:
            words = " ".join(each for each, made_by in DATASETS.items() if made_by == artifact.name)
            hint = f"`openk2 inspect {words} --uri ...`" if words else f"name an artifact of the stage '{name}'"
            raise InspectError(f"{artifact.uri} holds '{artifact.name}', not '{name}': {hint}")
        return artifact
    step = graph(request)[name]
    if wanted.recognise and step.artifact() is None:
        step = graph(request, _unjudged(load_preset(request)))[name]
    if wanted.dataset == "corpus" and step.artifact() is None and (unfinished := attempted(step)):
        console.print(
            "This corpus was not published: its stage failed, or has not come to its end. What it recorded so far:"
        )
        return unfinished
    return step.require()


def _unjudged(preset: Preset) -> Preset:
    """The preset of rewrites that no judge has seen: one that is asked for their style is no part of them."""
    alignment = preset.rephrase.alignment.model_copy(update={"judge": None})
    return preset.model_copy(update={"rephrase": preset.rephrase.model_copy(update={"alignment": alignment})})


def _known(artifact: Artifact, wanted: Wanted) -> None:
    """Refuse a source or a stage that nothing has, rather than show nothing of it."""
    sources = artifact.statistics.get("by_source", {})
    if wanted.source and sources and wanted.source not in sources:
        raise InspectError(f"there is no source '{wanted.source}': {near(wanted.source, list(sources))}")
    if wanted.stage and wanted.stage not in STAGES:
        raise InspectError(f"there is no stage '{wanted.stage}': choose one of {', '.join(STAGES)}")


def _unknown(artifact: Artifact, wanted: Wanted) -> str:
    s = artifact.statistics
    names = sorted({*s.get("rejected_by_reason", {}), *(rule["rule"] for rule in s.get("rules", {}).values())})
    if wanted.rule in names:
        return f"'{wanted.rule}' dropped nothing of what was asked for: leave out --source, --stage or --language"
    return f"no rule of this {wanted.dataset} is called '{wanted.rule}': {near(wanted.rule, names)}"


def _write(target: str, document: Document) -> str:
    storage.write(target, html.page(document).encode())
    return target
