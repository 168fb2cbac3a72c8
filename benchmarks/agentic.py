"""Simulated turns per CPU-second without a model, and the CPU time of evolving synthetic tools.

    python benchmarks/agentic.py [--tasks 300] [--tools 2000]

Turns: tasks drawn, played by scripted assistants, judged by the rules. A turn is a message of a dialogue: of the
user, the assistant or a tool. The goal is 500 per CPU-second. Tools: evolved, validated, exercised and deduplicated,
with what was refused; the goal is 20,000 in 1,200 CPU-seconds (ten minutes on two cores).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOUSE)]

from tasks.agentic.synthesis.config import ToolsConfig  # noqa: E402 (the folder above is no package)
from tasks.agentic.synthesis.tools import run as make_tools  # noqa: E402
from tasks.artifact import Step  # noqa: E402
from tasks.launch import Execution  # noqa: E402
from training.rl.worlds.filters import Trajectory, sift  # noqa: E402
from training.rl.worlds.policies import WRONG, play  # noqa: E402
from training.rl.worlds.task import draw_task  # noqa: E402
from training.rl.worlds.wording import SPLITS  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300, help="tasks of each split")
    parser.add_argument("--tools", type=int, default=2000, help="synthetic tools; 0 for none")
    given = parser.parse_args()
    simulate(given.tasks)
    if given.tools:
        evolve(given.tools)


def simulate(count: int) -> None:
    """Tasks to verdicts."""
    began = time.process_time()
    tasks = [draw_task(seed, split) for split in SPLITS for seed in range(count)]
    drawn = time.process_time()
    played = [play(task, policy) for task in tasks for policy in ("right", *WRONG)]
    made: list[Trajectory] = [one for one in played if one is not None]
    simulated = time.process_time()
    kept, refused, counts = sift(made)
    judged = time.process_time()

    turns = sum(len(one.messages) for one in made)
    print(f"{len(tasks)} tasks, {len(made)} dialogues, {turns} turns")
    print(f"  drawn     {1000 * (drawn - began) / len(tasks):8.2f} CPU-ms a task")
    print(f"  played    {turns / (simulated - drawn):8.0f} turns per CPU-second")
    print(f"  judged    {turns / (judged - simulated):8.0f} turns per CPU-second")
    print(f"  in all    {turns / (judged - began):8.0f} turns per CPU-second")
    print(f"kept {len(kept)}: {dict(Counter(one.policy for one in kept))}; refused {len(refused)}:")
    for reason, count in counts.most_common():
        print(f"  {count:6} {reason}")


def evolve(count: int) -> None:
    """Candidates to different tools."""
    with tempfile.TemporaryDirectory() as root:
        began = time.process_time()
        figures = make_tools(Step("tools", ToolsConfig(count=count), root), Execution()).statistics
        seconds = time.process_time() - began
    print(f"{count} tools evolved, validated and deduplicated in {seconds:.1f} CPU-seconds")
    print(f"  {figures['candidates']} candidates, {figures['calls']} calls, {1000 * seconds / count:.1f} CPU-ms a tool")
    for reason, number in figures["rejected_by_reason"].items():
        print(f"  {number:6} {reason}")


if __name__ == "__main__":
    main()
