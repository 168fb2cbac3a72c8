"""Refresh: what the sources hold by now and did not before becomes a new version of the corpus; the old one stays."""

from __future__ import annotations

from flows.corpus import corpus
from flows.dag import dag, next_snapshot
from flows.preset import load_preset
from flows.request import Request
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.corpus.tasks import acquire_news
from tasks.progress import Progress


@stage("refresh")
def refresh(request: Request) -> Artifact:
    """List the sources again; what is new or has changed is curated and published beside what was there before.

    A corpus that is not complete, be it the first or one that an interrupted refresh left, is completed before that.
    """
    preset = load_preset(request)
    plan = dag(request, preset)
    if not plan.curated():
        corpus(request)
        plan = dag(request, preset)
    following = next_snapshot(plan, preset)
    with Progress("refresh", 1, "listing") as progress:
        news = acquire_news(following)
        number = len(following.versions()) - 1
        found = f"{news.statistics['files']:,} files are" if news else "nothing is"
        progress.advance(note=f"{found} new or changed since snapshot {number - 1}")
    return corpus(request) if news else plan.corpus.require()
