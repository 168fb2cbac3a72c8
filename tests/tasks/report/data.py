"""A recipe's steps, published with statistics and parts of the shapes that the stages write; made up, but plausible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field

from model.config import Config
from tasks.accounts import Balance
from tasks.artifact import Step
from tests.tasks.report import rollouts
from tests.tasks.report.training import (
    DOMAINS,
    base_metrics,
    dialogues,
    dialogues_parts,
    final,
    release,
    rl,
    rl_metrics,
    sft,
    sft_metrics,
)

ORDER = (
    ("sources", ()),
    ("corpus", ("sources",)),
    ("corpus-gate", ("corpus",)),
    ("scores", ("corpus",)),
    ("rewrites", ("corpus",)),
    ("rewrites-gate", ("rewrites",)),
    ("tokenizer", ("corpus",)),
    ("mix", ("corpus", "scores", "rewrites", "tokenizer")),
    ("tokens", ("corpus", "rewrites", "tokenizer", "mix")),
    ("tokens-gate", ("tokens",)),
    ("base", ("tokens", "tokenizer")),
    ("tools", ()),
    ("tools-gate", ("tools",)),
    ("dialogues", ("tokenizer",)),
    ("dialogues-gate", ("dialogues",)),
    ("sft", ("base", "dialogues", "tokens", "tokenizer")),
    ("rl", ("sft", "dialogues", "tokens", "tokenizer")),
    ("release", ("rl", "tokenizer")),
    ("evaluation", ("release", "base", "sft", "rl", "dialogues", "tokens")),
    ("benchmarks", ("corpus", "rewrites")),
    ("base-suites", ("base", "benchmarks", "tokenizer", "tokens")),
    ("release-suites", ("release", "benchmarks", "tokenizer", "tokens")),
)


class Settings(Config):
    """Literals of a made-up stage."""

    seed: int = 0
    """Seed."""
    optimizer: dict[str, float] = Field(default_factory=lambda: {"tau": 12.0})
    """Only what the report reads."""


def steps(root: Path) -> list[Step]:
    """The steps of one recipe, nothing of them published."""
    made: dict[str, Step] = {}
    for name, inputs in ORDER:
        made[name] = Step(name, Settings(), str(root), tuple(made[parent] for parent in inputs), "code")
    return list(made.values())


def publish(root: Path, until: str = "release-suites") -> list[Step]:
    """The steps, everything up to and with `until` published."""
    found = steps(root)
    for step in found:
        statistics = STATISTICS[step.name]() if step.name in STATISTICS else {"bytes": 61_000_000}
        for key, (suffix, content) in PARTS.get(step.name, dict)().items():
            step.put(key, suffix, lambda path, content=content: write(path, content))
        balance = Balance("documents", 4321, out=4000, rejected=300, dropped=21) if step.name == "corpus" else None
        step.publish(statistics, balance=balance, cost={"money": 0.01})
        if step.name == until:
            break
    return found


def write(path: Path, content: Any) -> None:
    if isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    elif isinstance(content, list):
        path.write_text("".join(json.dumps(line) + "\n" for line in content))
    else:
        path.write_text(content)


def corpus() -> dict[str, Any]:
    sources = {
        "linux-doc": ("web", "en", "GPL-2.0-only", 3301, 2950, 9_400_000),
        "python3-doc": ("web", "en", "PSF-2.0", 520, 498, 6_100_000),
        "sympy": ("code", "en", "BSD-3-Clause", 1490, 1311, 11_800_000),
        "stdlib": ("code", "en", "PSF-2.0", 611, 560, 7_900_000),
        "giac-doc": ("math", "en", "GPL-3.0-or-later", 240, 231, 2_200_000),
        "pari-doc": ("math", "en", "GPL-2.0-or-later", 120, 112, 1_700_000),
        "foldoc": ("knowledge", "en", "GFDL-1.3", 15_021, 13_610, 5_400_000),
        "manpages-zh": ("knowledge", "zh", "GFDL-1.2", 2210, 1900, 3_300_000),
    }
    names = ("domain", "language", "licence", "read", "documents", "bytes")
    by_source = {name: dict(zip(names, values, strict=True)) for name, values in sources.items()}

    def total(key: str) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for entry in by_source.values():
            group = found.setdefault(entry[key], {"documents": 0, "bytes": 0})
            group["documents"] += entry["documents"]
            group["bytes"] += entry["bytes"]
        return found

    documents = sum(entry["documents"] for entry in by_source.values())
    read = sum(entry["read"] for entry in by_source.values())
    reasons = {"too_short": 1204, "near_duplicate": 611, "exact_duplicate": 290, "symbol_share": 140, "language": 83}
    reasons["repeated_lines"] = read - documents - 3 - sum(reasons.values())
    return {
        "documents": documents,
        "bytes": sum(entry["bytes"] for entry in by_source.values()),
        "read": read,
        "rejected": read - documents - 3,
        "unreadable": 3,
        "by_domain": total("domain"),
        "by_source": by_source,
        "by_language": total("language"),
        "by_licence": total("licence"),
        "rejected_by_reason": reasons,
        "near_duplicates": 611,
        "exact_duplicates": 290,
        "masked": {"EMAIL": 412, "KEY": 3},
        "rules": {
            f"{route}/{name}": record | {"route": route} for route in ("prose", "other") for name, record in RULES
        },
    }


RULES = [
    (
        name,
        {
            "rule": name,
            "unit": "document",
            "judged": 9000,
            "failed": failed,
            "only": failed // 3,
            "limit": limit,
            "direction": direction,
            "edges": [limit * bin / 4 for bin in range(9)],
            "counts": [0, 100, 900, 4000, 3000, 600, 250, 100, 50],
        },
    )
    for name, failed, limit, direction in (("symbol_share", 140, 0.1, "above"), ("repeated_lines", 480, 0.3, "above"))
]


def corpus_parts() -> dict[str, Any]:
    texts = {
        "web": "The kernel's documentation describes",
        "code": "def polar(z):",
        "math": "Let f be",
        "knowledge": "A",
    }
    documents = [
        {
            "id": f"{domain}{n:028x}",
            "text": f"{texts[domain]} <number> {n}",
            "source": f"{domain}-source",
            "domain": domain,
        }
        for domain in DOMAINS
        for n in range(4)
    ]
    stages = {"near_duplicate": "dedup", "exact_duplicate": "dedup", "language": "language"}
    survivor = documents[0]["id"]
    rejected = [
        {
            "id": f"{n:032x}",
            "stage": stages.get(reason, "quality"),
            "reason": reason,
            "value": f"{survivor} 0.8{n}" if reason in ("near_duplicate", "exact_duplicate") else "0.4",
            "number": None if reason in stages else 0.4,
            "limit": None if reason in stages else 0.3,
            "others": "",
            "source": "foldoc",
            "url": f"foldoc:{reason}#{n}",
            "text_head": f"{reason} text {n}",
        }
        for reason in corpus()["rejected_by_reason"]
        for n in range(3)
    ]
    unread = {"stage": "read", "reason": "unreadable", "value": "gzip ends too early", "number": None, "limit": None}
    rejected += [rejected[0] | unread | {"url": f"sympy:cut-{n}.gz", "source": "sympy"} for n in range(3)]
    hit = {
        "url": "stdlib:heapq.py",
        "source": "stdlib",
        "set": "humaneval",
        "item": "HumanEval/12",
        "words": 31,
        "share": 0.62,
        "begin": 100,
        "end": 290,
        "passage": "return the longest one, <b>or the first</b>",
    }
    return {
        "documents/0": (".parquet", pl.DataFrame(documents)),
        "rejected/0": (".parquet", pl.DataFrame(rejected)),
        "contamination/0": (".parquet", pl.DataFrame([hit])),
    }


def expectation(sentence: str, expected: str, observed: str, success: bool = True) -> dict[str, Any]:
    return {
        "table": "whole",
        "sentence": sentence,
        "success": success,
        "expected": expected,
        "observed": observed,
        "expectation": "ExpectColumnValuesToBeBetween",
        "column": "x",
        "why": "it matters",
        "remedy": "look at the corpus",
        "rows": [],
        "examples": [],
    }


def gate() -> dict[str, Any]:
    expectations = [
        expectation("No two documents have the same id", "none", "none"),
        expectation("Every domain has its least share of the bytes", "at least web 5 %", "web 31 %, math 8 %"),
    ]
    return {"success": True, "evaluated": 2, "failed": 0, "expectations": expectations}


def rewrites() -> dict[str, Any]:
    return {
        "documents": 31,
        "segments": 420,
        "accepted": 58,
        "acceptance_rate": 58 / 420,
        "fallbacks": 40,
        "by_style": {
            "explanatory": {"segments": 210, "accepted": 31},
            "academic": {"segments": 130, "accepted": 19},
            "learning_note": {"segments": 80, "accepted": 8},
        },
        "by_domain": {"knowledge": {"segments": 340, "accepted": 50}, "math": {"segments": 80, "accepted": 8}},
        "rejected_by_check": {"numbers": 110, "length": 84, "cosine": 70, "fidelity": 51, "repetition": 47},
        "tokens_generated": 61_000,
        "tokens_prompt": 402_000,
        "seconds_wall": 148.2,
        "seconds_checking": 9.1,
        "thresholds": {
            "length": {"field": "rephrase.alignment.length", "least": 0.5, "most": 1.8, "by_style": {}},
            "cosine": {"field": "rephrase.alignment.cosine", "least": 0.75, "most": None},
        },
        "requests_reused": 12,
        "prediction": {"basis": "measured"},
        "comparison": {
            "requests": {"predicted": 400, "actual": 420, "ratio": 1.05},
            "tokens_generated": {"predicted": 50_000, "actual": 61_000, "ratio": 1.22},
            "money": {"predicted": 0.0, "actual": 0.0, "ratio": None},
            "seconds": {"predicted": 120.0, "actual": 148.2, "ratio": 1.235},
        },
    }


def rewrites_parts() -> dict[str, Any]:
    source = "A bus is a set of conductors that connects 3 or more units of a computer. It was standardised in 1983."
    rows = []
    for style in ("academic", "explanatory", "learning_note"):
        for index, reason in enumerate(("", "numbers", "fidelity")):
            text = "In a computer a bus connects 3 or more units; its standard dates from 1983."
            rows.append(
                {
                    "source_id": f"{style:.4}{index}" + "a" * 24,
                    "style": style,
                    "perspective": "",
                    "detail": "",
                    "domain": "math" if style == "learning_note" else "knowledge",
                    "index": index,
                    "attempt": 0,
                    "candidate": 0,
                    "prompt_hash": "00c0ffee",
                    "engine": "endpoint",
                    "model": "some-<model>",
                    "seed": 7,
                    "source_text": source,
                    "rewrite_text": text if not reason else "A bus connects 4 units & <b>never</b> fails.",
                    "accepted": not reason,
                    "reason": reason,
                    "why": "lost 3; invented 4" if reason == "numbers" else "",
                    "source_sentence": "",
                    "rewrite_sentence": "",
                    "finish": "stop",
                    "prompt_tokens": 90,
                    "generated_tokens": 30,
                    "scores": {"length": 0.6 + 0.1 * index, "numbers": 0.5 if reason else 1.0, "cosine": 0.9},
                }
            )
    segments = [{"index": 0, "start": 0, "end": len(source), "action": "rewritten"}]
    made = {"id": "b" * 32, "source_id": rows[0]["source_id"], "style": "academic", "domain": "knowledge"}
    return {
        "segments/0": (".parquet", pl.DataFrame(rows)),
        "rewrites/0": (".parquet", pl.DataFrame([made | {"text": rows[0]["rewrite_text"], "segments": segments}])),
    }


def tokens() -> dict[str, Any]:
    train = {"code": 5_900_000, "knowledge": 2_700_000, "math": 1_100_000, "web": 4_300_000}
    return {
        "tokens": sum(train.values()),
        "documents": 20_900,
        "by_domain": {
            name: {"tokens": count, "documents": 5000, "bytes": int(count * 3.4), "bytes_per_token": 3.4}
            for name, count in train.items()
        },
        "by_source": {
            "sympy": {"tokens": 3_700_000, "documents": 1311, "bytes": 11_800_000, "licence": "BSD-3-Clause"}
        },
        "rewrites": {"documents": 31, "tokens": 14_000, "bytes": 60_000},
        "heldout": {
            name: {"tokens": count // 60, "documents": 90, "bytes": count // 20, "bytes_per_token": 3.3}
            for name, count in train.items()
        },
        "empty": 0,
        "shards": {"train": 8, "heldout": 4},
        "vocabulary": 8192,
        "end_of_document": 8176,
        "tokenizer": "0123456789abcdef",
    }


def tokenizer() -> dict[str, Any]:
    ratios = {"code": 3.1, "knowledge": 3.9, "math": 2.8, "web": 3.8}
    return {"vocabulary": 8192, "merges": 7919, "special": {"[BOS]": 8175}, "digits": 3, "bytes_per_token": ratios}


def scores() -> dict[str, Any]:
    ngram = {"ngrams": ["<b>theorem</b>"], "weight": 4.1, "effect": 0.02, "positives": 0.3, "negatives": 0.01}
    graded = {"documents": 40, "spearman": 0.41, "coherence": 0.3, "informativeness": None, "education": 0.5}
    return {
        "documents": 21_000,
        "auc": 0.93,
        "average_precision": 0.91,
        "calibration_error": 0.031,
        "reliability": [{"said": (n + 0.5) / 10, "so": (n + 0.4) / 10, "examples": 90} for n in range(10)],
        "examples": {name: {"positives": 900, "negatives": 700} for name in ("calibration", "heldout", "train")},
        "telling": {"positive": [ngram], "negative": [ngram | {"weight": -3.0}]},
        "by_bucket": {name: {"documents": 7000, "bytes": 20_000_000} for name in ("high", "low", "medium")},
        "histograms": {source: [n * n for n in range(20)] for source in corpus()["by_source"]},
        "judge": {
            "asked": 44,
            "graded": 40,
            "refused": 1,
            "unparsable": 3,
            "tokens_prompt": 9000,
            "tokens_generated": 900,
            "means": {"coherence": 3.1, "education": 2.2, "informativeness": 2.9},
            "itself": {"documents": 4, "same": 0.75, "distance": 0.25, "spearman": None},
            "classifier": graded,
        },
    }


def mix() -> dict[str, Any]:
    group = {"documents": 5000, "bytes": 9_000_000, "available": 3_000_000, "asked": 0.25, "epochs": 1.1}
    return {
        "tokens": 13_200_000,
        "available": 12_000_000,
        "epochs_most": 1.5,
        "left_out": 12,
        "groups": 4,
        "auc": 0.93,
        "by_domain": {name: group | {"tokens": 3_300_000, "share": 0.25} for name in DOMAINS},
        "by_source": {"sympy": group | {"tokens": 3_300_000, "share": 0.25}},
        "by_bucket": {"high": group | {"tokens": 3_300_000, "share": 0.25}},
    }


def mix_parts() -> dict[str, Any]:
    rows = [
        {
            **{"domain": domain, "source": f"{domain}-source", "language": "en", "licence": "MIT", "bucket": "high"},
            **{"documents": 5000, "bytes": 9_000_000, "available": 3e6, "asked": 0.25, "epochs": 1.1, "tokens": 3.3e6},
            **{"share": 0.25, "reason": f"Read 1.1 times: {domain} is asked for <25>% of the tokens."},
        }
        for domain in DOMAINS
    ]
    return {"table": (".parquet", pl.DataFrame(rows))}


def tools() -> dict[str, Any]:
    return {
        **{"tools": 3, "domains": 2, "candidates": 5, "rejected": 2, "calls": 70},
        "rejected_by_reason": {"near duplicate": 2},
        "by_category": {"travel": 2, "health": 1},
        "by_operation": {"find": 2, "move": 1},
    }


def tools_parts() -> dict[str, Any]:
    schema = json.dumps({"type": "object", "properties": {"kind": {"enum": ["<b>", "big"]}}})
    rows = [
        {
            **{"name": f"hut.<i>{number}", "category": category, "domain": "hut", "entity": "bed", "origin": "script"},
            **{"description": "Finds </pre> beds", "parameters": schema, "arguments": "{}", "result": "{}"},
        }
        for number, category in enumerate(("travel", "travel", "health"))
    ]
    return {"tools/all": (".parquet", pl.DataFrame(rows)), "card": (".md", "# Tools")}


STATISTICS = {
    "tools": tools,
    "tools-gate": gate,
    "dialogues-gate": gate,
    "corpus": corpus,
    "scores": scores,
    "mix": mix,
    "corpus-gate": gate,
    "rewrites": rewrites,
    "rewrites-gate": gate,
    "tokenizer": tokenizer,
    "tokens": tokens,
    "tokens-gate": gate,
    "base": lambda: {
        **{"updates": 540, "parameters": 31_000_000, "active_parameters": 6_200_000},
        **{"ranks": 4, "layout": {"pipeline": 2, "virtual": 1, "expert": 2}, "rollbacks": [{"update": 7}]},
    },
    "dialogues": dialogues,
    "sft": sft,
    "rl": rl,
    "release": release,
    "evaluation": final,
    "benchmarks": lambda: {"suites": {"sums": {"items": 4, "contaminated": 1, "too_short": 0}}, "missing": {}},
    "base-suites": lambda: suites("base"),
    "release-suites": lambda: suites("bf16", "int4"),
}


def suites(*models: str) -> dict[str, Any]:
    """One suite on some models."""
    score = {"value": 0.5, "low": 0.15, "high": 0.85}
    sums = {"kind": "answer", "measure": "right answers", "items": 4, "score": score, "contaminated": 1, "details": {}}
    return {"models": {model: {"sums": sums} for model in models}}


def answers(*models: str) -> dict[str, tuple[str, Any]]:
    """A row for every item."""
    rows = pl.DataFrame({"suite": ["sums"] * 4, "item": list("abcd"), "score": [1.0, 0.0, 1.0, 0.0]})
    return {f"answers/{model}": (".parquet", rows) for model in models}


PARTS = {
    "tools": tools_parts,
    "corpus": corpus_parts,
    "mix": mix_parts,
    "corpus-gate": lambda: {"docs/index": (".html", "<p>docs</p>")},
    "rewrites": rewrites_parts,
    "base": lambda: {"metrics": (".jsonl", base_metrics())},
    "dialogues": dialogues_parts,
    "sft": lambda: {"metrics": (".jsonl", sft_metrics())},
    "rl": lambda: {"metrics": (".jsonl", rl_metrics()), **rollouts.parts()},
    "release": lambda: {"int4/model": (".safetensors", "weights")},
    "base-suites": lambda: answers("base"),
    "release-suites": lambda: answers("bf16", "int4"),
}
