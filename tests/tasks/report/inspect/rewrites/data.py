"""Rewrites in the form that the stage publishes: a corpus of two documents, attempts at their segments, one rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.artifact import Artifact, Step
from tasks.corpus import records
from tasks.corpus.config import CorpusConfig
from tasks.rephrase.alignment.limits import thresholds
from tasks.rephrase.alignment.stack import NAMES
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.prompts import styles
from tasks.rephrase.rewriting import REWRITES, SEGMENTS
from tests.tasks.report.inspect.corpus.data import EVIL

BUS = "The bus, standardised in 1983 by the members of the IEEE, does not carry power and has 3 lines.\n\n"
CODE = "```\nlet x = 1\n```\n\n"
CLOCK = "Its clock runs at 8 MHz in `fast_mode`, so that $t = 1/f$ holds."
TEXT = BUS + CODE + CLOCK
OTHER = "Another document, of which nothing that was written passed: it has 7 words or more."
GOOD = "IEEE members made the bus a standard in 1983; it has three lines, none of which carries power."


def document(text: str, **values: Any) -> dict[str, Any]:
    row = {"source": "library", "url": f"library:{len(text)}", "domain": "knowledge", "language": "en"}
    return row | {"licence": "MIT", "meta": "{}"} | values | {"id": records.document_id(text), "text": text}


def attempt(source: str, rewrite: str, reason: str = "", why: str = "", **values: Any) -> dict[str, Any]:
    """A row of `segments/`; checks after the refusing one were not reached. `scores` change some of the others."""
    changed = values.pop("scores", {})
    reached = NAMES[: NAMES.index(reason) + 1] if reason in NAMES else NAMES
    scores = {name: changed.get(name, GIVEN.get(name, 1.0)) if name in reached else None for name in NAMES}
    row: dict[str, Any] = {
        "source_id": records.document_id(TEXT),
        "style": "academic",
        "perspective": "",
        "detail": "",
        "domain": "knowledge",
        "index": 0,
        "attempt": 0,
        "candidate": 0,
        "prompt_hash": "00c0ffee00c0ffee",
        "engine": "embedded",
        "model": "SmolLM2",
        "seed": 11,
        "source_text": source,
        "rewrite_text": rewrite,
        "accepted": not reason,
        "reason": reason,
        "why": why,
        "source_sentence": "",
        "rewrite_sentence": "",
        "finish": "stop",
        "prompt_tokens": 120,
        "generated_tokens": 40,
        "scores": scores,
    }
    return row | values


GIVEN = {"length": 1.0, "repetition": 0.0, "copied": 0.1, "seam": 0.0, "cosine": 0.9, "fidelity": 0.8}


def attempts() -> list[dict[str, Any]]:
    """Two attempts at the first segment, the second accepted; two at the last, none; and 20 at another document that
    were refused for their length, ever further from the band."""
    other = {"source_id": records.document_id(OTHER), "style": "steps", "domain": "math"}
    wrong = "The bus, standardised in 1984 by the members of the IEEE, carries power over 3 lines, says Intel."
    said = {"source_sentence": "It is of 1983.", "rewrite_sentence": "It is of 1984."}
    return [
        attempt(BUS, wrong, "numbers", "lost 1983; invented 1984", scores={"numbers": 0.5}, **said),
        attempt(BUS, GOOD, attempt=1, scores={"cosine": 0.76}),
        attempt(CLOCK, "It ticks.", "formulas", "lost t=1/f", index=2, scores={"formulas": 0.0}),
        attempt(CLOCK, CLOCK, "copied", "100% of its words are runs", index=2, attempt=1, scores={"copied": 1.0}),
        *(
            attempt(OTHER, "x" * (90 + place), "length", "too long", index=place, scores={"length": 2 + place}, **other)
            for place in range(20)
        ),
    ]


def rewrite(**values: Any) -> dict[str, Any]:
    """The accepted document's row."""
    source = document(TEXT)
    text = f"{GOOD}\n\n{CODE}{CLOCK}"
    cuts = [0, len(BUS), len(BUS + CODE), len(TEXT)]
    actions = ("rewritten", "block", "original")
    row = {
        "id": records.document_id(text),
        "source_id": source["id"],
        "style": "academic",
        "text": text,
        **{name: source[name] for name in ("source", "url", "domain", "language", "licence", "meta")},
        "segments": [
            {"index": place, "start": cuts[place], "end": cuts[place + 1], "action": action}
            for place, action in enumerate(actions)
        ],
    }
    return row | values


def publish(
    root: Path,
    rows: Sequence[dict[str, Any]] | None = None,
    made: Sequence[dict[str, Any]] | None = None,
    parts: int = 2,
) -> Artifact:
    """Corpus and rewrites, the attempts in `parts` parts."""
    corpus = Step("corpus", CorpusConfig(), str(root))
    table = pa.Table.from_pylist([document(TEXT), document(OTHER)], schema=records.DOCUMENT)
    corpus.put("documents/0", ".parquet", lambda path: records.write(path, table), rows=2)
    corpus.publish({"documents": 2})
    config = RephraseConfig()
    step = Step("rewrites", config, str(root), (corpus,))
    rows = list(attempts() if rows is None else rows)
    share = -(-len(rows) // parts) or 1
    for place in range(parts):
        some = pa.Table.from_pylist(rows[place * share : (place + 1) * share], schema=SEGMENTS)
        step.put(f"segments/{place}", ".parquet", lambda path, some=some: pq.write_table(some, path), len(some))
    written = pa.Table.from_pylist(list([rewrite()] if made is None else made), schema=REWRITES)
    step.put("rewrites/0", ".parquet", lambda path: pq.write_table(written, path), len(written))
    stated = {"thresholds": thresholds(config.alignment, styles())}
    return step.publish({"documents": len(written), "segments": len(rows)} | stated)


def hostile(root: Path) -> Artifact:
    """Rewrites in which every text is an attack."""
    names = {"style": EVIL, "domain": EVIL, "prompt_hash": EVIL, "engine": EVIL, "model": EVIL, "finish": EVIL}
    rows = [
        attempt(EVIL, f"{EVIL} and more of it 12", "numbers", f"invented {EVIL}", **names),
        attempt(EVIL, EVIL, attempt=1, **names),
        attempt(EVIL, EVIL, "engine", EVIL, index=1, **names | {"scores": {}}),
        attempt(EVIL, EVIL, index=2, **names) | {"reason": EVIL, "accepted": False, "why": EVIL},
    ]
    made = rewrite(text=EVIL, style=EVIL, domain=EVIL, source=EVIL, url=EVIL, licence=EVIL, language=EVIL)
    return publish(root, rows, [made], parts=1)
