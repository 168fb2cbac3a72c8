"""Tokens: a tokenizer learned from the corpus, then corpus and accepted rewrites as shards that a gate lets through."""

from __future__ import annotations

from flows.dag import dag
from flows.preset import load_preset
from flows.request import Request
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.corpus.tasks import mix_corpus
from tasks.gate import gate
from tasks.tokens.tasks import train_tokenizer, write_shards


@stage("tokens")
def tokens(request: Request) -> Artifact:
    """A byte-level BPE with K2's special tokens, the mix, uint32 shards by split and domain, the gate."""
    preset = load_preset(request)
    plan = dag(request, preset)
    plan.corpus_gate.require()
    plan.rewrites_gate.require()
    corpus = plan.corpus.require()
    tokenizer = train_tokenizer(plan.tokenizer, corpus)
    rewrites = plan.rewrites.require()
    mix = mix_corpus(plan.mix, corpus, plan.scores.require(), rewrites, tokenizer, preset.execution)
    shards = write_shards(plan.tokens, corpus, rewrites, tokenizer, mix, preset.execution)
    gate(plan.tokens_gate, plan.tokens)
    return shards
