"""What INT4 experts cost: bf16, rounding after training, and training through the rounding, in SFT and in RL.

    openk2 run STAGE --preset test --root data       # corpus, rephrase, tokens
    python -m benchmarks.int4_study --root data [--out docs/claims/int4] [--seeds 1,2,3] [--stages sft,rl]
                                    [--tables]

One base, and from it for each seed SFT and RL twice: plain, and with `int4: true`. Their jobs are those of the recipe
(`int4_study.yaml`), published under the root: the same command goes on where it was. The plain models are measured in
bf16 and rounded to INT4, the others in the INT4 that they were trained through, all by the functions of the stage
`evaluation`. `--tables` runs nothing and writes the page's tables from the CSV files.

What comes of it stands in docs/claims/int4.md.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.studies import read_table, spread, table, write_table
from expectations.gate import judge
from flows.preset import load_preset
from flows.request import Request
from flows.steps import graph
from model.convert import as_served
from model.moe import Experts
from model.quantize import GROUP, fake_quantize_experts
from model.transformer import Transformer
from tasks.agentic import dialogues as dialogue_stage
from tasks.artifact import Artifact
from tasks.evaluate.checkpoint import write_checkpoint
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.measure import answer, even, heldout_loss
from tasks.launch import run_job
from tasks.progress import listen
from training.fidelity import tool_call_fidelity, tool_turns, try_tools
from training.inputs import load_chat, load_dialogues, load_model

PRESET = Path(__file__).with_suffix(".yaml")
STAGES = {"sft": "SFT", "rl": "RL"}
VARIANTS = {
    "bf16": "bf16",
    "rounded": "rounded after training",
    "trained": "trained through INT4",
}
MEASURES = {
    "heldout": "held-out loss, nats",
    "sampled": "right, sampled",
    "greedy": "right, greedy",
    "trigger_f1": "trigger F1",
    "schema_accuracy": "calls that fit their schema",
    "exact": "exact calls",
}
PAIRS = (("bf16", "rounded"), ("bf16", "trained"), ("rounded", "trained"))
BITS = (16, 4, 3, 2)
ROUNDS = 24  # timed steps of either kind, in turn


def request(root: str, seed: int, int4: bool) -> Request:
    """The recipe of one seed and side; the base, its tokens and the dialogues are the same for all."""
    changes = [f"sft.seed={seed}", f"rl.seed={seed}"]
    changes += [f"{stage}.int4={str(int4).lower()}" for stage in STAGES]
    return Request(root=root, preset_file=str(PRESET), overrides=[*changes, "execution.precision=float32"])


def trained(root: str, stage: str, seed: int, int4: bool) -> dict[str, Artifact]:
    """What a stage of one side of one seed reads and makes; what is not there yet is made."""
    asked = request(root, seed, int4)
    steps, execution = graph(asked), load_preset(asked).execution
    for name in ("tokens", "tokenizer"):
        if steps[name].artifact() is None:
            raise SystemExit(f"{root} has no {name} of the preset `test`: the commands are in docs/claims/int4.md")
    if steps["dialogues"].artifact() is None:
        dialogue_stage.run(steps["dialogues"], execution)
        judge(steps["dialogues-gate"], steps["dialogues"])
    for name in ("base", "sft", "rl")[: 2 + (stage == "rl")]:
        if steps[name].artifact() is None:
            run_job(steps[name], execution)
    return {name: steps[name].require() for name in ("tokens", "tokenizer", "dialogues", stage)}


def measured(root: str, seeds: Sequence[int], stages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each stage, seed and variant."""
    config = load_preset(request(root, 0, False)).evaluate
    for stage, seed in itertools.product(stages, seeds):
        for int4, variants in ((False, ("bf16", "rounded")), (True, ("trained",))):
            made = trained(root, stage, seed, int4)
            model = load_model(made[stage].uri)
            for variant in variants:
                served = as_served(model, int4=variant != "bf16")
                yield {"stage": stage, "seed": seed, "variant": variant} | figures(served, made, config)


def figures(model: Transformer, made: Mapping[str, Artifact], config: EvaluateConfig) -> dict[str, float | str]:
    """Everything that is measured on one model: the same tokens, problems, turns and draws for all of them."""
    chat, uri = load_chat(made["tokenizer"].uri), made["dialogues"].uri
    problems = [one for one in load_dialogues(uri, "test").problems if not one.tools]
    answered = answer(model, chat, even(problems, config.problems), config)
    turns = [
        turn for turn in tool_turns(uri, "test", config.tool_dialogues) if turn.environment in ("tool_call", "no_call")
    ]
    calls = tool_call_fidelity([one for one in try_tools(model, chat, turns, config.max_new_tokens, "float32") if one])
    losses = heldout_loss(model, made["tokens"], config)
    found = {
        "heldout": statistics.fmean(domain["nats"] for domain in losses.values()),
        "sampled": statistics.fmean(one["sampled"] for one in answered),
        "greedy": statistics.fmean(one["greedy"] for one in answered),
    }
    return {name: round(value, 5) for name, value in found.items()} | {
        name: "" if calls[name] is None else calls[name] for name in ("trigger_f1", "schema_accuracy", "exact")
    }


def control(root: str, seeds: Sequence[int]) -> Iterator[dict[str, float]]:
    """Held-out loss of the plain SFT models on coarser grids: whether the study could see a harm at all."""
    config = load_preset(request(root, 0, False)).evaluate
    for seed in seeds:
        made = trained(root, "sft", seed, False)
        for bits in BITS:
            model = load_model(made["sft"].uri)
            on_grid(model, bits)
            losses = heldout_loss(as_served(model, int4=False), made["tokens"], config)
            yield {
                "seed": seed,
                "bits": bits,
                "heldout": round(statistics.fmean(one["nats"] for one in losses.values()), 5),
            }


@torch.no_grad()
def on_grid(model: Transformer, bits: int) -> None:
    """Round every routed expert's weights to `bits` by INT4's rule (`model/quantize.py`); 16 leaves them."""
    for module in model.modules():
        if isinstance(module, Experts) and bits < max(BITS):
            for weight in module.parameters():
                groups = weight.unflatten(-1, (-1, GROUP))
                scale = (groups.abs().amax(-1, keepdim=True) / ((2**bits - 1) / 2)).bfloat16().float()
                steps = (groups / scale).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).round()
                weight.copy_((steps * scale).flatten(-2))


def speed(model: Transformer) -> Iterator[dict[str, float | str]]:
    """CPU-seconds of a step of 2,048 tokens, forward and backward, plain and through INT4, in turn on one network."""
    tokens_BS = torch.randint(0, model.config.vocab_size, (16, 129), generator=torch.Generator().manual_seed(0))
    through = Transformer(model.config, seed=0)
    through.load_state_dict(model.state_dict())
    fake_quantize_experts(through)
    for number in range(ROUNDS + 1):
        row: dict[str, float | str] = {"round": number}
        for name, each in (("plain", model), ("int4", through)):
            began = time.process_time()
            each.loss(each(tokens_BS[:, :-1]).hidden_BSD, tokens_BS[:, 1:]).backward()
            row[name] = round(time.process_time() - began, 4)
            each.zero_grad()
        if number:  # the first step allocates
            yield row


def sizes(model: Transformer) -> dict[str, int]:
    """Bytes of the released weights."""
    found = {}
    for name, int4 in (("bf16", False), ("int4", True)):
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(model, Path(folder), int4, 1 << 30)
            found[name] = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    return found


# -------------------------------------------------------------------------------------------------------------- tables


def markdown(folder: Path) -> str:
    """The page's tables, from the CSV files."""
    runs = read_table(folder / "runs.csv")
    stages = [stage for stage in STAGES if any(row["stage"] == stage for row in runs)]
    parts = [*(_levels(runs, stage) for stage in stages), _differences(runs, stages), _control(folder), _cost(folder)]
    return "\n\n".join(parts)


def _control(folder: Path) -> str:
    found = {(row["bits"], row["seed"]): row["heldout"] for row in read_table(folder / "control.csv")}
    seeds = sorted({seed for _, seed in found})
    rows = []
    for bits in BITS[1:]:
        rises = [found[bits, seed] - found[BITS[0], seed] for seed in seeds]
        rows.append(
            [f"{bits}", _spread("heldout", [found[bits, seed] for seed in seeds]), _spread("heldout", rises, "+")]
        )
    return table(["bits of a weight, rounded after SFT", "held-out loss, nats", "rise over bf16"], rows)


def _levels(runs: Sequence[Mapping[str, Any]], stage: str) -> str:
    rows = [
        [name, *(_spread(measure, _values(runs, stage, variant, measure)) for measure in MEASURES)]
        for variant, name in VARIANTS.items()
    ]
    return table([f"after {STAGES[stage]}", *MEASURES.values()], rows)


def _differences(runs: Sequence[Mapping[str, Any]], stages: Sequence[str]) -> str:
    rows = []
    for stage in stages:
        for before, after in PAIRS:
            cells = []
            for measure in MEASURES:
                pairs = zip(*(_values(runs, stage, one, measure) for one in (before, after)), strict=True)
                cells.append(_spread(measure, [b - a for a, b in pairs], "+"))
            rows.append([f"{STAGES[stage]}: {VARIANTS[after]} - {VARIANTS[before]}", *cells])
    return table(["difference, paired by seed", *MEASURES.values()], rows)


def _cost(folder: Path) -> str:
    steps, stored = read_table(folder / "speed.csv"), read_table(folder / "size.csv")
    plain, int4 = (statistics.median(row[name] for row in steps) for name in ("plain", "int4"))
    bytes_of = {row["variant"]: row["bytes"] for row in stored}
    share = spread([row["int4"] / row["plain"] - 1 for row in steps], "+.1%")
    return table(
        ["", "bf16", "INT4", "change"],
        [
            ["weights of the release, kB", *(f"{bytes_of[name] / 1e3:,.0f}" for name in ("bf16", "int4")),
             f"{bytes_of['int4'] / bytes_of['bf16'] - 1:+.0%}"],
            ["CPU-seconds of a training step (float32, median)", f"{plain:.3f}", f"{int4:.3f}", share],
        ],
    )  # fmt: skip


def _values(runs: Sequence[Mapping[str, Any]], stage: str, variant: str, measure: str) -> list[float]:
    """By seed."""
    rows = sorted(
        (row for row in runs if (row["stage"], row["variant"]) == (stage, variant)), key=lambda row: row["seed"]
    )
    return [row[measure] for row in rows]


def _spread(measure: str, values: Sequence[Any], sign: str = "") -> str:
    if any(isinstance(value, str) for value in values):
        return "none"
    return spread(values, f"{sign}.{4 if measure == 'heldout' else 3}f")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="data", help="where the tokens of the preset `test` lie")
    parser.add_argument("--out", type=Path, default=Path("docs/claims/int4"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--stages", default="sft,rl")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    if not options.tables:
        torch.set_num_threads(1)
        seeds = [int(seed) for seed in options.seeds.split(",")]
        with listen(lambda tick: print(tick.sentence(), flush=True)):
            rows = list(measured(options.root, seeds, options.stages.split(",")))
        write_table(options.out / "runs.csv", rows)
        model = load_model(trained(options.root, "sft", seeds[0], False)["sft"].uri)
        write_table(options.out / "control.csv", list(control(options.root, seeds)))
        write_table(
            options.out / "size.csv", [{"variant": name, "bytes": count} for name, count in sizes(model).items()]
        )
        write_table(options.out / "speed.csv", list(speed(model)))
    print(markdown(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
