"""Statistics and metrics of the trained steps, of the shapes that their stages write; made up, but plausible."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import polars as pl

DOMAINS = ("code", "knowledge", "math", "web")
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


def fidelity(value: float) -> dict[str, Any]:
    shares = {"trigger_precision": value, "trigger_recall": value, "schema_accuracy": value, "exact": value / 2}
    intervals = {f"{name}_interval": [share - 0.1, share + 0.1] for name, share in shares.items()}
    return {"turns": 60, "due": 40, "called": 40, "calls": 40, "trigger_f1": value, **shares, **intervals}


def silent() -> dict[str, Any]:
    """Nothing was called, so that there is no schema to fit."""
    return {"turns": 4, "due": 2, "called": 0, "calls": 0, "trigger_f1": 0.0, "schema_accuracy": None, "exact": 0.0}


def sft() -> dict[str, Any]:
    return {
        "updates": 160,
        "stopped": "budget",
        "stopped_because": "it had taken its last update",
        "band": [0.2, 0.5],
        "pass_rate": 0.37,
        "greedy_pass_rate": 0.61,
        "evaluation": evaluation(0.35, 0.6),
        "selection": {
            "addition": {"pass_rate": 0.37, "weight": 1.0, "because": "in the band"},
            "tool_call": {"pass_rate": 0.01, "weight": 0.0, "because": "out of reach: hardly ever right"},
        },
        "tools": {
            **fidelity(0.8),
            "by_environment": {"tool_call": fidelity(0.8)},
            "by_unseen_tool": {"heat": silent()},
        },
        "text": {"before": {"web": 4.51}, "after": {"web": 4.62}, "rise": 0.11},
        "tokens": 210_000,
        "trained_tokens": 41_000,
        "dialogues": 6000,
        "seed": 0,
    }


def sft_metrics() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for step in range(161):
        if step % 40 == 0:
            found = evaluation(0.02 + 0.35 * step / 160, 0.03 + 0.58 * step / 160)
            lines.append({"event": "evaluation", "step": step, "resting": [], **found})
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
        "rise": {
            **{"sampled": rise, "greedy": rise},
            "by_environment": {
                "addition": {"sampled": rise, "greedy": rise},
                "tool_call": {"sampled": rise, "greedy": {"rise": -0.02, "interval": [-0.08, 0.04]}},
            },
        },
        "responses": 23_040,
        "response_tokens": 210_000,
        "prompts_seen": 1100,
        "seed": 0,
    }


def rl_metrics() -> list[dict[str, Any]]:
    draw = random.Random(1)
    lines: list[dict[str, Any]] = [
        {"event": "evaluation", "step": 0, "split": "development", **evaluation(0.4, 0.61)},
        {"event": "evaluation", "step": 0, "split": "test", **evaluation(0.37, 0.61)},
    ]
    for step in range(1, 61):
        values: dict[str, float | None] = {
            "temperature": 1.0 - 0.2 * step / 60,
            "disagreement": None if step == 7 else 2e-6,
            "reward": 0.3 + 0.006 * step + draw.gauss(0, 0.03),
            "right": 0.3 + 0.006 * step + draw.gauss(0, 0.03),
            "kl": 0.01,
            "ptx_loss": 3.3 - 0.001 * step,
            "response_tokens": 8.0,
            "informative": 0.6,
        }
        if step % 3:
            values["critic_right"] = 0.7
        lines.append({"event": "update", "step": step, **values, "timing": {"seconds": 2.0, "idle_seconds": 0.25}})
        if step % 20 == 0:
            found = evaluation(0.4 + 0.006 * step, 0.61)
            lines.append({"event": "evaluation", "step": step, "split": "development", **found})
    lines += [{"event": "evaluation", "step": 60, "split": "test", **evaluation(0.73, 0.92)}]
    return lines


def dialogues() -> dict[str, Any]:
    entry = {
        "train": {"dialogues": 3000, "tokens": 90_000, "trained_tokens": 20_000, "longest": 60},
        "development": {"dialogues": 200, "tokens": 6000, "trained_tokens": 1300, "longest": 58},
        "test": {"dialogues": 210, "tokens": 6100, "trained_tokens": 1310, "longest": 57},
    }
    return {
        "dialogues": 6400,
        "rejected": 93,
        "rejected_by_reason": {"the tool failed: math.divide": 60, "too many tokens": 31, "people refused it": 2},
        "funnel": {
            "addition": {"drawn": 4100, "passed_over": 690, "length": 0, "people": 0, "kept": 3410},
            "tool_call": {"drawn": 3400, "passed_over": 317, "rules": 60, "length": 31, "people": 2, "kept": 2990},
        },
        "by_environment": {"addition": entry, "tool_call": entry},
        "filters": {
            "tool_call": {"the tool failed: math.divide": 60, "too many tokens": 31, "people refused it": 2},
        },
        "players": {"script": 6200, "script: recovering": 200},
        "personas": {"nurse": 2100, "official": 890},
        "problems": {"train": 5000, "development": 380, "test": 381},
        "tools": 12,
    }


def dialogues_parts() -> dict[str, Any]:
    call = {"function": {"name": "convert", "arguments": '{"km":3}'}}
    messages = [
        {"role": "user", "content": "What is 3 km in m?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    answer = {"role": "tool", "name": "convert", "content": "<b>3000</b>"}
    rubric = {
        "criteria": ["does what was asked: What is 3 km in m?"],
        "checkpoints": [{"tool": "convert", "arguments": {"km": 3}}],
        "says": [["3000"]],
    }
    rows = [
        {
            "id": name,
            "environment": name,
            "player": "script",
            "persona": "nurse",
            "rubric": json.dumps(rubric),
            "verdicts": '{"rules": "passed", "judge": "passed"}',
            "messages": json.dumps([*messages, answer]),
        }
        for name in ("addition", "tool_call")
    ]
    lost = {"environment": "tool_call", "reason": "the tool failed: math.divide", "messages": json.dumps(messages)}
    return {
        "dialogues/train/addition": (".parquet", pl.DataFrame(rows)),
        "rejected/train/tool_call": (".parquet", pl.DataFrame([lost])),
    }


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


def release() -> dict[str, Any]:
    verification = {"tokens": 96, "transformers_difference": 3.1e-6, "int4_equals_training_forward": True}
    return {
        "parameters": 31_000_000,
        "active_parameters": 6_200_000,
        "bf16_bytes": 62_000_000,
        "int4_bytes": 27_000_000,
        "verification": verification,
    }
