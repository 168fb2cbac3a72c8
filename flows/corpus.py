"""Corpus: raw documents fetched, curated (extraction, language, quality, duplicates), let through by a gate, scored."""

from __future__ import annotations

from flows.dag import dag
from flows.preset import load_preset
from flows.request import Request
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.corpus.tasks import acquire_sources, curate_corpus, score_documents
from tasks.gate import gate


@stage("corpus")
def corpus(request: Request) -> Artifact:
    """Sources into a cache and an artifact, documents out of them with every reject named, snapshot by snapshot (those
    that exist already are kept), the gate, then every document's quality."""
    preset = load_preset(request)
    plan = dag(request, preset)
    for snapshot in plan.corpus.versions():
        sources = acquire_sources(snapshot.inputs[0])
        documents = curate_corpus(snapshot, sources, preset.execution)
    gate(plan.corpus_gate, plan.corpus)
    score_documents(plan.scores, documents, preset.execution)
    return documents
