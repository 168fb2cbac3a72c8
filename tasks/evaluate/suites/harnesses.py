"""SWE-bench and tau2-bench for a suite of kind `external`: run the harness, and write its scores where the suite reads
them.

    python -m tasks.evaluate.suites.harnesses swe-bench --bin /opt/swe/bin --dataset verified --workers 4
    python -m tasks.evaluate.suites.harnesses tau2 --bin /opt/tau2/bin --data /opt/tau2-bench/data --domain airline \\
        --user-model openai/gpt-4.1 --user-key-variable TAU2_USER_KEY

Both harnesses are installed apart from openk2: `--bin` is the folder of their programs. They are looked for nowhere
else, and openk2's own packages are not theirs. Works in an empty folder, which `external` makes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def swe_bench(options: argparse.Namespace) -> dict[str, Any]:
    """mini-swe-agent solves the instances, swebench judges its patches in containers."""
    model, out, run = f"openai/{os.environ['OPENK2_MODEL']}", Path("solved"), "openk2"
    solve = [
        str(options.bin / "mini-extra"), "swebench", "--subset", options.dataset, "--split", options.split,
        "--workers", str(options.workers), "--output", str(out), "--model", model,
        "--config", "swebench.yaml", "--config", "model.cost_tracking=ignore_errors",  # nobody sells our tokens
        "--config", "model.model_kwargs.temperature=0",
    ]  # fmt: skip
    if options.slice:
        solve += ["--slice", options.slice]
    _run(solve)
    judge = [
        str(options.bin / "swebench"), "eval", options.dataset, "--split", options.split, "--predictions",
        str(out / "preds.json"), "--run-id", run, "--workers", str(options.workers), "--report-dir", ".",
    ]  # fmt: skip
    _run(judge)
    report = json.loads(Path(f"{model.replace('/', '__')}.{run}.json").read_text(encoding="utf-8"))
    return {"measure": "resolved", "rows": swe_bench_rows(report)}


def swe_bench_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every instance that was tried: one without a patch, or whose container failed, is not resolved."""
    resolved, why = set(report["resolved_ids"]), dict(report.get("failure_reasons", {}))
    why |= dict.fromkeys(report["empty_patch_ids"], "no patch")
    found = []
    for name in report["submitted_ids"]:
        reason = "" if name in resolved else why.get(name, "error" if name in report["error_ids"] else "tests fail")
        found.append({"id": name, "score": float(name in resolved), "why": reason})
    return found


def tau2(options: argparse.Namespace) -> dict[str, Any]:
    """The model as the agent; the simulated user is another model, with its own address and key."""
    # litellm's names for a server of one's own: OPENAI_* are left to the user's model, and to tau2's judge
    agent = {
        "HOSTED_VLLM_API_BASE": os.environ["OPENAI_BASE_URL"],
        "HOSTED_VLLM_API_KEY": os.environ["OPENAI_API_KEY"],
        "TAU2_DATA_DIR": str(options.data),
    }
    others = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    if options.user_key_variable:
        others["OPENAI_API_KEY"] = os.environ[options.user_key_variable]
    if options.user_url:
        others["OPENAI_BASE_URL"] = options.user_url
    saved = Path("played").absolute()  # else it lies under --data, where the next run would go on with it
    play = [
        str(options.bin / "tau2"), "run", "--domain", options.domain, "--agent-llm",
        f"hosted_vllm/{os.environ['OPENK2_MODEL']}", "--user-llm", options.user_model,
        "--num-trials", str(options.trials), "--max-concurrency", str(options.workers),
        "--seed", os.environ["OPENK2_SEED"], "--save-to", str(saved), "--auto-resume",
    ]  # fmt: skip
    if options.tasks:
        play += ["--num-tasks", str(options.tasks)]
    _run(play, others | agent)
    results = json.loads((saved / "results.json").read_text(encoding="utf-8"))
    return {"measure": "pass^1", "rows": tau2_rows(results)}


def tau2_rows(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By task, the share of its trials whose reward is 1: tau2's pass^1. Trials that tau2 calls errors of its
    infrastructure are left out, as tau2 does; a task that has no others is not there."""
    of: dict[str, list[Mapping[str, Any]]] = {}
    for one in results["simulations"]:
        if one["termination_reason"] != "infrastructure_error":
            of.setdefault(str(one["task_id"]), []).append(one)
    found = []
    for name, trials in of.items():
        passed = [abs(((one.get("reward_info") or {}).get("reward") or 0.0) - 1) <= 1e-6 for one in trials]
        ends = ", ".join(dict.fromkeys(one["termination_reason"] for one in trials))
        found.append({"id": name, "score": sum(passed) / len(trials), "why": "" if all(passed) else f"ended by {ends}"})
    return found


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    if code := subprocess.run(command, env=environment and dict(environment)).returncode:
        sys.exit(f"{Path(command[0]).name} ended with exit code {code}")  # its own words stand above


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Run a harness and write its scores to $OPENK2_SCORES.")
    kinds = parser.add_subparsers(required=True)
    swe = kinds.add_parser("swe-bench")
    swe.set_defaults(run=swe_bench)
    swe.add_argument("--dataset", default="verified", help="verified, or a folder with the data set")
    swe.add_argument("--split", default="test")
    swe.add_argument("--slice", default="", help="0:50 takes the first 50 instances")
    tau = kinds.add_parser("tau2")
    tau.set_defaults(run=tau2)
    tau.add_argument("--data", type=Path, required=True, help="the folder `data` of tau2-bench's repository")
    tau.add_argument("--domain", default="airline")
    tau.add_argument("--user-model", required=True, help="the simulated user, by litellm's name for it")
    tau.add_argument("--user-url", default="", help="its address, where the name begins with openai/")
    tau.add_argument("--user-key-variable", default="", help="the variable that holds OpenAI's key for it")
    tau.add_argument("--trials", type=int, default=1)
    tau.add_argument("--tasks", type=int, default=0, help="how many; 0 takes all")
    for one in (swe, tau):
        one.add_argument("--bin", type=Path, required=True, help="the folder of the harness's programs")
        one.add_argument("--workers", type=int, default=4)
    options = parser.parse_args(arguments)
    Path(os.environ["OPENK2_SCORES"]).write_text(json.dumps(options.run(options)), encoding="utf-8")


if __name__ == "__main__":
    main()
