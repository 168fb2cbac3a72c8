"""`openk2 inspect`: which dataset and which rule are meant, found, and shown in the terminal or written as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rich.console import Console

from flows.request import Request
from flows.steps import graph
from model import storage
from tasks.artifact import Artifact

if TYPE_CHECKING:
    from tasks.inspect.corpus.rejects import Selection

DATASETS = ("corpus", "rewrites")
"""What can be inspected; the first is meant where none is named. A dataset is a room's word, never a rule's."""


class InspectError(ValueError):
    """A dataset, a rule or a stage that is not there; the message lists what is."""


@dataclass(frozen=True)
class Wanted:
    """What to look at."""

    words: tuple[str, ...] = ()
    """`[DATASET] [RULE] [PATH.html]`, the last only with `html`."""
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
    """Of rewrites: one document whole, by its id or a rewrite's."""

    @property
    def dataset(self) -> str:
        """Which of DATASETS is meant."""
        return next((word for word in self.words[:1] if word in DATASETS), DATASETS[0])

    @property
    def path(self) -> str:
        """Where the page goes; empty for its usual place."""
        return next((word for word in self.words[-1:] if self.html and word.endswith(".html")), "")

    @property
    def rule(self) -> str:
        """The rule that is named, or ''. Raises InspectError where there are several."""
        rest = self.words[1:] if self.words and self.words[0] in DATASETS else self.words
        rest = rest[:-1] if self.path else rest
        if len(rest) > 1:
            raise InspectError(f"'{' '.join(rest)}' is more than one rule: say `openk2 inspect [DATASET] [RULE]`")
        return rest[0] if rest else ""


def show(request: Request, wanted: Wanted, console: Console) -> str | None:
    """Print the overview, or one rule's samples; or write the page (to `{root}/inspect.html`, of rewrites
    `{root}/rewrites.html`, where no path is given) and return where it lies."""
    artifact = _artifact(request, wanted, console)
    if wanted.dataset == "rewrites":
        return _rewrites(request, artifact, wanted, console)
    for name in ("accepted", "style", "domain", "document"):
        if getattr(wanted, name):
            raise InspectError(f"--{name} is for rewrites: `openk2 inspect rewrites --{name}`")
    return _corpus(request, artifact, wanted, console)


def _corpus(request: Request, artifact: Artifact, wanted: Wanted, console: Console) -> str | None:
    from tasks.inspect.corpus import overview, terminal
    from tasks.inspect.corpus.rejects import Selection, heads
    from tasks.inspect.terminal import print_all

    _known(artifact, wanted)
    selection = Selection(
        wanted.rule, wanted.stage, wanted.source, wanted.language, overview.declared_languages(artifact)
    )
    if wanted.kept:
        _kept(artifact, selection, wanted, console)
        return None
    if wanted.html:
        from tasks.inspect.corpus.page import build

        target = wanted.path or f"{request.root.rstrip('/')}/inspect.html"
        return _write(target, build(artifact, selection, wanted.count))
    found = overview.inspect(artifact, selection, wanted.count if wanted.rule else 0)
    if not wanted.rule:
        print_all(console, terminal.overview(found))
        return None
    rule = found.rule(wanted.rule)
    if rule is None:
        raise InspectError(_unknown(artifact, wanted))
    samples = found.tally.nearest.get((rule.stage, rule.name), [])
    survivors = heads(artifact, [reject.survivor for reject in samples if reject.survivor], terminal.HEAD)
    print_all(console, terminal.rule_page(found, rule, survivors))
    return None


def _rewrites(request: Request, artifact: Artifact, wanted: Wanted, console: Console) -> str | None:
    from tasks.inspect.rewrites import terminal
    from tasks.inspect.rewrites.attempts import Selection, known, survey
    from tasks.inspect.rewrites.limits import Limits
    from tasks.inspect.rewrites.page import build, build_document
    from tasks.inspect.rewrites.whole import documents
    from tasks.inspect.terminal import print_all

    for name in ("stage", "source", "language", "kept"):
        if getattr(wanted, name):
            raise InspectError(f"--{name} is for the corpus: rewrites are chosen with --style, --domain and --document")
    if artifact.name != "rewrites":
        raise InspectError(f"{artifact.uri} holds '{artifact.name}', not rewrites: name the artifact of that stage")
    if not artifact.parts("segments"):
        raise InspectError(f"{artifact.uri} lists no attempts at segments: run its stage again")
    limits = Limits.of(artifact)
    target = wanted.path or f"{request.root.rstrip('/')}/rewrites.html"
    if wanted.document:
        if wanted.rule or wanted.accepted or wanted.domain:
            raise InspectError("--document shows one document whole: leave out the check, --accepted and --domain")
        found = documents(artifact, wanted.document, wanted.style)
        if wanted.html:
            return _write(target, build_document(artifact, limits, found))
        for whole in found:
            print_all(console, terminal.document(whole, limits))
        return None
    if wanted.rule and wanted.accepted:
        raise InspectError(f"--accepted shows what every check let through: leave out '{wanted.rule}'")
    selection = Selection(wanted.rule, wanted.style, wanted.domain)
    everything = survey(artifact, Selection())
    names = {"style": list(everything.by(0)), "domain": list(everything.by(1))}
    for name, there in names.items():
        asked = getattr(wanted, name)
        if asked and name == "domain" and not everything.recorded:
            raise InspectError(f"{artifact.uri} does not record the domain of its attempts: run its stage again")
        if asked and asked not in there:
            raise InspectError(f"nothing was rewritten in the {name} '{asked}'{_near(asked, there)}")
    checks = known(everything)
    if wanted.rule and wanted.rule not in checks:
        raise InspectError(f"no check is called '{wanted.rule}'{_near(wanted.rule, checks)}")
    if wanted.html:
        return _write(target, build(artifact, limits, selection, wanted.count, wanted.accepted))
    refused, accepted = (wanted.count if asked else 0 for asked in (wanted.rule, wanted.accepted))
    tally = survey(artifact, selection, refused, accepted)
    if wanted.rule:
        print_all(console, terminal.check_page(tally, limits, wanted.rule))
    elif wanted.accepted:
        print_all(console, terminal.accepted_page(tally, limits))
    else:
        print_all(console, terminal.overview(tally, artifact, limits))
    return None


def _kept(artifact: Artifact, selection: Selection, wanted: Wanted, console: Console) -> None:
    from tasks.inspect.corpus import kept, terminal
    from tasks.inspect.terminal import print_all

    if not wanted.rule or wanted.html:
        raise InspectError("--kept shows the kept documents nearest to one rule: `openk2 inspect RULE --kept`")
    samples, judged = kept.nearest(artifact, wanted.rule, selection, wanted.count)
    print_all(console, terminal.kept_page(wanted.rule, samples, judged))


def _artifact(request: Request, wanted: Wanted, console: Console) -> Artifact:
    if wanted.uri:
        return Artifact.load(wanted.uri.rstrip("/"))
    step = graph(request)[wanted.dataset]
    if wanted.dataset == "corpus" and step.artifact() is None:
        from tasks.corpus.curation import attempted

        if unfinished := attempted(step):
            console.print(
                "This corpus was not published: its stage failed, or has not come to its end. What it recorded so far:"
            )
            return unfinished
    return step.require()


def _known(artifact: Artifact, wanted: Wanted) -> None:
    """Refuse a source or a stage that nothing has, rather than show nothing of it."""
    from tasks.report.rejects import STAGES

    sources = artifact.statistics.get("by_source", {})
    if wanted.source and sources and wanted.source not in sources:
        raise InspectError(f"there is no source '{wanted.source}'{_near(wanted.source, list(sources))}")
    if wanted.stage and wanted.stage not in STAGES:
        raise InspectError(f"there is no stage '{wanted.stage}': choose one of {', '.join(STAGES)}")


def _unknown(artifact: Artifact, wanted: Wanted) -> str:
    names = sorted({*artifact.statistics.get("rejected_by_reason", {}), *artifact.statistics.get("rules", {})})
    if wanted.rule in names:
        return f"'{wanted.rule}' dropped nothing of what was asked for: leave out --source, --stage or --language"
    return f"no rule of this {wanted.dataset} is called '{wanted.rule}'{_near(wanted.rule, names)}"


def _near(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, 3) or sorted(names)[:8]
    return f": did you mean {', '.join(close)}?" if close else ""


def _write(target: str, page: str) -> str:
    storage.write(target, page.encode())
    return target
