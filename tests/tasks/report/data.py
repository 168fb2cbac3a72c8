"""A recipe's steps, published with statistics and parts of the shapes that the stages write; made up, but plausible."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field

from model.config import Config
from tasks.artifact import Step

DOMAINS = ("code", "knowledge", "math", "web")
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
    ("dialogues", ("tokenizer",)),
    ("sft", ("base", "dialogues", "tokenizer")),
    ("rl", ("sft", "dialogues", "tokens", "tokenizer")),
    ("qat", ("rl", "dialogues", "tokenizer")),
    ("release", ("qat", "tokenizer")),
    ("evaluation", ("release", "base", "sft", "rl", "dialogues", "tokens")),
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


def publish(root: Path, until: str = "evaluation") -> list[Step]:
    """The steps, everything up to and with `until` published."""
    found = steps(root)
    for step in found:
        statistics = STATISTICS[step.name]() if step.name in STATISTICS else {"bytes": 61_000_000}
        for key, (suffix, content) in PARTS.get(step.name, dict)().items():
            step.put(key, suffix, lambda path, content=content: write(path, content))
        step.publish(statistics, {"money": 0.01})
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
        "rejected_by_check": {"numbers": 110, "length": 84, "similarity": 70, "negation": 51, "repetition": 47},
        "tokens_generated": 61_000,
        "tokens_prompt": 402_000,
        "seconds_generating": 148.2,
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
        for index, reason in enumerate(("", "numbers", "negations")):
            text = "In a computer a bus connects 3 or more units; its standard dates from 1983."
            rows.append(
                {
                    "source_id": f"{style:.4}{index}" + "a" * 24,
                    "style": style,
                    "domain": "math" if style == "learning_note" else "knowledge",
                    "index": index,
                    "attempt": 0,
                    "prompt_hash": "00c0ffee",
                    "engine": "endpoint",
                    "model": "some-<model>",
                    "seed": 7,
                    "source_text": source,
                    "rewrite_text": text if not reason else "A bus connects 4 units & <b>never</b> fails.",
                    "accepted": not reason,
                    "reason": reason,
                    "why": "lost 3; invented 4" if reason == "numbers" else "",
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
        "rewrites/0": (".parquet", pl.DataFrame([made | {"segments": segments}])),
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


STAGES = (
    ("warm-up", 60, 0.0, 3e-3),
    ("constant", 240, 3e-3, 3e-3),
    ("decay", 150, 3e-3, 3e-4),
    ("annealing", 60, 3e-4, 1e-4),
    ("long context", 30, 1e-4, 1e-4),
)


def base_metrics() -> list[dict[str, Any]]:
    draw, lines, step, seen = random.Random(0), [], 0, 0
    clips = [[0] * 4 for _ in range(6)]
    for stage, updates, first, last in STAGES:
        for place in range(updates):
            step, seen = step + 1, seen + 16_384
            rate = first + (last - first) * (place + 1) / updates
            loss = 3.1 + 5.9 * math.exp(-seen / 1.2e6) + draw.gauss(0, 0.05)
            layers = [min(3 + 11 * seen / 4e6 * (1 + layer / 8) + draw.random(), 14.0) for layer in range(6)]
            clipped = sum(value > 12 for value in layers)
            for layer, value in enumerate(layers):
                clips[layer][layer % 4] += value > 12
            lines.append(
                {
                    "event": "update",
                    "step": step,
                    "stage": stage,
                    "tokens": seen,
                    "learning_rate": rate,
                    "loss": loss,
                    "aux_loss": 0.001,
                    "gradient_norm": 0.4 + draw.random() / 5,
                    "max_logit": max(layers),
                    "max_logit_by_layer": layers,
                    "clipped_heads": clipped,
                    "update_rms": 0.2 + draw.gauss(0, 0.003),
                    "update_rms_lowest": 0.18,
                    "idle_matrices": 0,
                    "expert_load_max": 1.2 + 2 * math.exp(-seen / 5e5) + draw.random() / 5,
                    "expert_load_max_by_layer": [1.2] * 5,
                    "timing": {"seconds": 0.6, "tokens_per_second": 27_000 + draw.gauss(0, 400)},
                }
            )
            if step % 30 == 0 or place == updates - 1:
                losses = {name: loss + shift for name, shift in zip(DOMAINS, (-0.4, 0.3, -0.1, 0.15), strict=True)}
                lines.append({"event": "evaluation", "step": step, "stage": stage, "losses": losses})
    lines.append({"event": "heads", "step": step, "max_logit": [], "gamma": [], "clips": clips})
    return lines


def rate(value: float, problems: int = 100, greedy: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"problems": problems, "sampled": value, "sampled_interval": [value - 0.06, value + 0.06]}
    if greedy is not None:
        found |= {"greedy": greedy, "greedy_interval": [greedy - 0.08, min(greedy + 0.08, 1.02)]}
    return found


def evaluation(value: float, greedy: float) -> dict[str, Any]:
    environments = {"addition": rate(value + 0.05, 50, greedy), "tool_call": rate(value - 0.05, 50, greedy)}
    return {**rate(value, 100, greedy), "finished": 0.98, "by_environment": environments}


def sft() -> dict[str, Any]:
    return {
        "updates": 160,
        "stopped": "band",
        "stopped_because": "the sampled pass rate entered the band",
        "band": [0.2, 0.5],
        "pass_rate": 0.37,
        "greedy_pass_rate": 0.61,
        "evaluation": {"gate": evaluation(0.37, 0.61), **evaluation(0.35, 0.6)},
        "tokens": 210_000,
        "trained_tokens": 41_000,
        "dialogues": 6000,
        "seed": 0,
        "seconds": 41.2,
    }


def sft_metrics() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for step in range(161):
        if step % 40 == 0:
            found = evaluation(0.02 + 0.35 * step / 160, 0.03 + 0.58 * step / 160)
            lines.append({"event": "evaluation", "step": step, "gate": found, **found})
        if step:
            timing = {"seconds": 0.2}
            lines.append(
                {"event": "update", "step": step, "loss": 2 * math.exp(-step / 50), "max_logit": 8.0, "timing": timing}
            )
    return lines


def rl() -> dict[str, Any]:
    rise = {"rise": 0.36, "interval": [0.28, 0.44]}
    return {
        "iterations": 60,
        "before": evaluation(0.37, 0.61),
        "after": evaluation(0.73, 0.92),
        "rise": {"sampled": rise, "greedy": rise},
        "responses": 23_040,
        "response_tokens": 210_000,
        "prompts_seen": 1100,
        "seed": 0,
        "seconds": 140.0,
    }


def rl_metrics() -> list[dict[str, Any]]:
    draw = random.Random(1)
    lines: list[dict[str, Any]] = [{"event": "evaluation", "step": 0, **evaluation(0.37, 0.61)}]
    for step in range(1, 61):
        values = {
            "reward": 0.3 + 0.006 * step + draw.gauss(0, 0.03),
            "right": 0.3 + 0.006 * step + draw.gauss(0, 0.03),
            "kl": 0.01,
            "ptx_loss": 3.3 - 0.001 * step,
            "response_tokens": 8.0,
            "informative": 0.6,
        }
        lines.append({"event": "update", "step": step, **values, "timing": {"seconds": 2.0}})
    lines += [{"event": "evaluation", "step": 60, **evaluation(0.73, 0.92)}]
    return lines


def dialogues() -> dict[str, Any]:
    entry = {
        "train": {"dialogues": 3000, "tokens": 90_000, "trained_tokens": 20_000, "longest": 60},
        "heldout": {"dialogues": 200, "tokens": 6000, "trained_tokens": 1300, "longest": 58},
    }
    return {
        "dialogues": 6400,
        "rejected": 91,
        "rejected_by_reason": {"impossible request": 60, "too many tokens": 31},
        "by_environment": {"addition": entry, "tool_call": entry},
        "problems": {"train": 5000, "heldout": 380},
        "tools": 12,
    }


def dialogues_parts() -> dict[str, Any]:
    call = {"function": {"name": "convert", "arguments": '{"km":3}'}}
    messages = [
        {"role": "user", "content": "What is 3 km in m?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    rows = [{"environment": name, "messages": json.dumps(messages)} for name in ("addition", "tool_call")]
    return {"dialogues/train/addition": (".parquet", pl.DataFrame(rows))}


def measured(value: float) -> dict[str, Any]:
    estimate = {"value": value, "low": max(value - 0.07, 0), "high": min(value + 0.07, 1)}
    rates = {"problems": 96, "greedy": estimate, "sampled": estimate}
    samples = [
        {"kind": "continuation", "prompt": "The derivative of", "greedy": "a function is <a function>", "sampled": "x"},
        {"kind": "chat", "prompt": "What is 17 + 25?", "greedy": "42", "sampled": "42"},
    ]
    tools = {"turns": 60, "trigger_f1": 0.8, "schema_accuracy": 0.9 if value > 0.1 else None, "exact": 0.5}
    heldout = {name: {"nats": 3.2, "bits_per_byte": 1.3, "tokens": 16_384} for name in DOMAINS}
    return {
        "pass_rate": rates,
        "by_environment": {"addition": rates},
        "heldout": heldout,
        "tools": tools,
        "samples": samples,
    }


def final() -> dict[str, Any]:
    models = {"base": 0.0, "sft": 0.37, "rl": 0.73, "bf16": 0.72, "int4": 0.69}
    change = {kind: {"value": -0.03, "low": -0.06, "high": 0.0} for kind in ("greedy", "sampled")}
    return {
        **{f"pass_rate_{name}": value for name, value in models.items()},
        "problems": 96,
        "samples": 4,
        "tool_turns": 60,
        "seed": 0,
        "models": {name: measured(value) for name, value in models.items()},
        "differences": {"sft to rl": change, "bf16 to int4": change},
        "not_measured": ["Safety."],
    }


def qat() -> dict[str, Any]:
    names = ("bf16", "rounded", "qat")
    return {
        "updates": 60,
        "distillation": 0.5,
        "loss": dict(zip(names, (0.31, 0.36, 0.32), strict=True)),
        "pass_rate": dict(zip(names, (0.73, 0.66, 0.72), strict=True)),
        "greedy_pass_rate": dict(zip(names, (0.92, 0.88, 0.92), strict=True)),
        "change_from_bf16": {name: {"sampled": [-0.01, -0.03, 0.01], "greedy": [0, -0.02, 0.02]} for name in names[1:]},
        "evaluation": {name: evaluation(0.7, 0.9) for name in names},
        "tokens": 90_000,
        "trained_tokens": 20_000,
        "seed": 0,
        "seconds": 30.1,
    }


def release() -> dict[str, Any]:
    verification = {"tokens": 96, "transformers_difference": 3.1e-6, "int4_equals_training_forward": True}
    return {
        "parameters": 31_000_000,
        "active_parameters": 6_200_000,
        "bf16_bytes": 62_000_000,
        "int4_bytes": 27_000_000,
        "verification": verification,
    }


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


STATISTICS = {
    "corpus": corpus,
    "scores": scores,
    "mix": mix,
    "corpus-gate": gate,
    "rewrites": rewrites,
    "rewrites-gate": gate,
    "tokenizer": tokenizer,
    "tokens": tokens,
    "tokens-gate": gate,
    "base": lambda: {"updates": 540, "parameters": 31_000_000, "active_parameters": 6_200_000},
    "dialogues": dialogues,
    "sft": sft,
    "rl": rl,
    "qat": qat,
    "release": release,
    "evaluation": final,
}
PARTS = {
    "corpus": corpus_parts,
    "mix": mix_parts,
    "corpus-gate": lambda: {"docs/index": (".html", "<p>docs</p>")},
    "rewrites": rewrites_parts,
    "base": lambda: {"metrics": (".jsonl", base_metrics())},
    "dialogues": dialogues_parts,
    "sft": lambda: {"metrics": (".jsonl", sft_metrics())},
    "rl": lambda: {"metrics": (".jsonl", rl_metrics())},
    "qat": lambda: {
        "metrics": (".jsonl", [{"event": "update", "step": n, "dialogue_loss": 1 / n} for n in range(1, 60)])
    },
    "release": lambda: {"int4/model": (".safetensors", "weights")},
}
