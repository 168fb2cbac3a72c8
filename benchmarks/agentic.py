"""Simulated turns per CPU-second without a model, and the CPU time of evolving synthetic tools.

    python -m benchmarks.agentic [--tasks 300] [--tools 2000] [--plays 4000]

Turns: tasks drawn, played by scripted assistants, judged by the rules. A turn is a message of a dialogue: of the
user, the assistant or a tool. The goal is 500 per CPU-second. Tools: evolved, validated, exercised and deduplicated,
with what was refused; the goal is 20,000 in 1,200 CPU-seconds (ten minutes on two cores). Plays: dialogues whose
assistant and user a simulated endpoint plays, 256 at once: the share of the 256 that it has in flight, and this
process's memory as it goes. The goal is 90 %, and memory that does not grow.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from benchmarks.common import module
from tasks.agentic.config import DialoguesConfig, PlayerConfig, WorldsConfig
from tasks.agentic.dialogues import ahead, makers_of
from tasks.agentic.roles import open_roles
from tasks.agentic.synthesis import tools
from tasks.agentic.synthesis.config import ToolsConfig
from tasks.artifact import Step
from tasks.launch import Execution
from training.rl.worlds.filters import judge
from training.rl.worlds.policies import WRONG, play
from training.rl.worlds.task import draw_task
from training.rl.worlds.wording import SPLITS

SLOTS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300, help="tasks of each split")
    parser.add_argument("--tools", type=int, default=2000, help="synthetic tools; 0 for none")
    parser.add_argument("--plays", type=int, default=0, help="dialogues that a simulated endpoint plays; 0 for none")
    parser.add_argument("--seconds", type=float, default=8.0, help="that it takes for a turn")
    given = parser.parse_args()
    simulate(given.tasks)
    if given.tools:
        evolve(given.tools)
    if given.plays:
        overlap(given.plays, given.seconds)


def simulate(count: int) -> None:
    """Tasks to verdicts."""
    began = time.process_time()
    tasks = [draw_task(seed, split) for split in SPLITS for seed in range(count)]
    drawn = time.process_time()
    played = [play(task, policy) for task in tasks for policy in ("right", *WRONG)]
    made = [one for one in played if one is not None]
    simulated = time.process_time()
    verdicts = [judge(one) for one in made]
    judged = time.process_time()

    turns = sum(len(one.messages) for one in made)
    print(f"{len(tasks)} tasks, {len(made)} dialogues, {turns} turns")
    print(f"  drawn     {1000 * (drawn - began) / len(tasks):8.2f} CPU-ms a task")
    print(f"  played    {turns / (simulated - drawn):8.0f} turns per CPU-second")
    print(f"  judged    {turns / (judged - simulated):8.0f} turns per CPU-second")
    print(f"  in all    {turns / (judged - began):8.0f} turns per CPU-second")
    kept = Counter(one.policy for one, verdict in zip(made, verdicts, strict=True) if verdict.score)
    print(f"kept {kept.total()}: {dict(kept)}; refused {len(made) - kept.total()}:")
    for reason, count in Counter(verdict.reason for verdict in verdicts if not verdict.score).most_common():
        print(f"  {count:6} {reason}")


def evolve(count: int) -> None:
    """Candidates to different tools."""
    with tempfile.TemporaryDirectory() as root:
        began = time.process_time()
        figures = tools.run(Step("tools", ToolsConfig(count=count), root), Execution()).statistics
        seconds = time.process_time() - began
    print(f"{count} tools evolved, validated and deduplicated in {seconds:.1f} CPU-seconds")
    print(f"  {figures['candidates']} candidates, {figures['calls']} calls, {1000 * seconds / count:.1f} CPU-ms a tool")
    for reason, number in figures["rejected_by_reason"].items():
        print(f"  {number:6} {reason}")


def overlap(count: int, seconds: float) -> None:
    """Many dialogues with an endpoint at once."""
    command = module("endpoint", "--first", str(seconds), "--batch", str(SLOTS))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, tempfile.TemporaryDirectory() as root:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            config = DialoguesConfig(worlds=WorldsConfig(train=count), player=PlayerConfig(model="simulated"))
            with open_roles(config, Execution(engine_url=url, engine_slots=SLOTS), root) as roles:
                plays = ahead(islice(makers_of(config, "train", "world", [], roles), count), SLOTS, lambda: count)
                began = time.process_time()
                samples = _watched(plays, url)
                spent = time.process_time() - began
                with urllib.request.urlopen(f"{url}/stats", timeout=10) as answer:
                    asked = json.load(answer)["answered"]
        finally:
            server.terminate()
    steady = samples[len(samples) // 5 : -len(samples) // 5]  # neither the start nor the last ones
    busy = sum(flying for flying, _ in steady) / len(steady) / SLOTS
    print(f"{count} dialogues played by an endpoint, {SLOTS} at once: {100 * busy:.0f} % of them in flight on average")
    print(f"  {asked} turns of {seconds:g} s, {1000 * spent / asked:.1f} CPU-ms each on this side")
    print(f"  memory in MB, as it goes: {', '.join(str(size) for _, size in samples[:: max(1, len(samples) // 8)])}")


def _watched(plays: Iterable[object], url: str) -> list[tuple[int, int]]:
    """(requests in flight, megabytes of this process), four times a second until the plays are over."""
    samples: list[tuple[int, int]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            with urllib.request.urlopen(f"{url}/stats", timeout=10) as answer:
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                samples.append((json.load(answer)["flying"], pages * resource.getpagesize() >> 20))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for _ in plays:
            pass
    finally:
        over.set()
        thread.join()
    return samples


if __name__ == "__main__":
    main()
