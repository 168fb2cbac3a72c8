"""Every Prefect flow by its name: what `openk2 run STAGE` and the deployments offer. The recipe says which steps a flow
runs (`flows.recipe`)."""

from __future__ import annotations

import logging

from prefect.flows import Flow
from prefect.logging import get_run_logger

from flows.precision import settle
from flows.preset import load_preset
from flows.recipe import FLOWS
from flows.request import Request
from flows.stage import stage
from flows.steps import graph, known, next_snapshot
from tasks.artifact import Artifact, NotReady, Step
from tasks.progress import Progress
from tasks.report.comparison import write_comparison
from tasks.report.tasks import write
from tasks.stage import find_news, make

log = logging.getLogger(__name__)


def _flow(name: str) -> Flow[[Request], Artifact]:
    """The flow of some stages of the recipe: a step that is published is skipped, one that was begun goes on."""

    def run(request: Request) -> Artifact:
        if graph(request).trains(name):
            request = _settled(request)
        execution, found = load_preset(request).execution, graph(request)
        leaves = [step for step in found.of(name) if step.leaf]
        for leaf in leaves:
            if found[leaf.name] is leaf:  # a snapshot that others follow is history: its files may be gone
                _discard(leaf, request.rebuild)
            make(leaf, execution)
        if leaves:  # what reads one that was made anew may be another step now
            found = graph(request)
        for step in found.of(name):
            if not step.leaf:
                _discard(step, request.rebuild)
            artifact = make(step, execution)
        return artifact

    run.__doc__ = FLOWS[name]
    return stage(name)(run)


corpus, rephrase, tokens, pretrain, posttrain, release = (_flow(name) for name in FLOWS if name != "evaluate")


@stage("evaluate")
def evaluate(request: Request) -> Artifact:
    """Suites of benchmarks on every checkpoint that is there, each measured once; gate on the release.

    It needs no more than one checkpoint, so that an automation may start it as soon as a stage has published one.
    """
    found, execution = graph(request), load_preset(request).execution
    made = []
    for step in found.of("evaluate"):
        if all(known(given) and given.artifact() for given in step.inputs):
            _discard(step, request.rebuild)
            made.append(make(step, execution))
    if len(made) < 2:  # the benchmarks, and what was measured by them
        raise NotReady("no checkpoint is published yet: run `openk2 run pretrain`, or the whole recipe")
    log.info("models side by side: %s", write_comparison(request.root))
    return made[-1]


@stage("report")
def report(request: Request) -> Artifact:
    """One self-contained page at `{root}/report.html`, from manifests alone, and the same as a markdown artifact."""
    return write(graph(request).newest(), request.root)


@stage("recipe")
def recipe(request: Request) -> Artifact:
    """Kimi K2's recipe from end to end. A stage whose artifact exists is skipped; a gate that fails ends the run."""
    request = _settled(request)  # in which precision this machine trains, for all that follows
    for name in FLOWS:
        STAGES[name](request)
    return report(request)


@stage("refresh")
def refresh(request: Request) -> Artifact:
    """List the sources again; what is new or has changed is curated and published beside what was there before.

    A corpus that is not complete, be it the first or one that an interrupted refresh left, is completed before that.
    """
    preset = load_preset(request)
    if not graph(request, preset).published("corpus", "corpus-gate"):
        corpus(request)
    found = graph(request, preset)
    following = next_snapshot(found, preset)
    with Progress("refresh", 1, "listing") as progress:
        news = find_news(following)
        number = len(following.versions()) - 1
        listed = f"{news.statistics['files']:,} files are" if news else "nothing is"
        progress.advance(note=f"{listed} new or changed since snapshot {number - 1}")
    if news:
        corpus(request)
    return graph(request, preset)["corpus"].require()


STAGES: dict[str, Flow[[Request], Artifact]] = {
    "recipe": recipe, "corpus": corpus, "refresh": refresh, "rephrase": rephrase, "tokens": tokens,
    "pretrain": pretrain, "posttrain": posttrain, "release": release, "evaluate": evaluate, "report": report,
}  # fmt: skip


def _settled(request: Request) -> Request:
    """`request` with its precision decided, once for the run and its stages, and said in the run's log."""
    found = settle(request)
    if found.decision:
        get_run_logger().info(found.decision)
    if found.warning:
        get_run_logger().warning(found.warning)
    return found.request


def _discard(step: Step, rebuild: bool) -> None:
    """Take back what a step published, or began, where it is to be made anew: as asked, because other code made it, or
    because its inputs were made anew and came out otherwise. Raises NotReady, and takes nothing back, where an input is
    not there to make it from."""
    if step.leaf and step.inputs:
        return  # a later snapshot of the sources is history
    artifact = step.artifact()
    if changed := step.outdated() if artifact else step.begun_from_others():
        why = f"{' and '.join(changed)} came out otherwise than when it was {'made' if artifact else 'begun'}"
    elif rebuild and artifact and artifact.other_code(step.code):
        why = "other code made it"
    else:
        return
    step.read()
    log.warning("%s is made anew: %s", step.name, why)
    step.discard()
