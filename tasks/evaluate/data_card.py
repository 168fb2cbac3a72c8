"""The data card, written from manifests alone: what the model was trained on, under which licences, what was left out
and why, and what is synthetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.artifact import Artifact
from tasks.evaluate.card import table


def data_card(name: str, lineage: Mapping[str, Artifact]) -> str:
    """DATA.md of a released folder.

    Args:
        name: the model's name.
        lineage: every artifact the model was made from, by name; what is absent is left out of the card.

    Returns:
        Markdown. The same manifests give the same bytes: no clock, path or host.
    """
    writers = {"corpus": _corpus, "rewrites": _rewrites, "tokens": _tokens, "dialogues": _dialogues}
    sections = [f"# Data of {name}"]
    for stage, write in writers.items():
        if stage in lineage:
            sections.append("\n".join(write(lineage[stage])))
    return "\n\n".join(sections) + "\n"


def _corpus(corpus: Artifact) -> Iterator[str]:
    """Sources and their licences, and what curation did."""
    s = corpus.statistics
    yield "## Sources\n"
    yield (
        f"{s['documents']:,} documents, {s['bytes'] / 1e6:,.1f} MB of text after curation. The licence is the one that "
        "the source declares:"
    )
    yield ""
    rows = [
        (
            source,
            entry.get("origin") or "",
            entry.get("domain", ""),
            entry.get("language", ""),
            f"{entry['documents']:,}",
            f"{entry['bytes'] / 1e6:,.2f}",
            entry.get("licence") or "unknown",
        )
        for source, entry in sorted(s.get("by_source", {}).items())
    ]
    yield table(*rows, header=("source", "origin", "domain", "language", "documents", "MB", "licence"))
    if "read" in s:
        yield "\n## Left out\n"
        yield (
            f"Of {s['read']:,} documents that were read, {s['rejected']:,} were rejected, by the first rule that "
            "failed:"
        )
        yield ""
        yield _counts(s.get("rejected_by_reason", {}), "reason", "documents")
    if masked := s.get("masked"):
        yield "\nPersonal data and secrets that were masked in the documents that stayed:\n"
        yield _counts(masked, "kind", "places")


def _rewrites(rewrites: Artifact) -> Iterator[str]:
    """What a language model wrote."""
    s, config = rewrites.statistics, rewrites.manifest["config"]
    yield "## Rewrites\n"
    model = f"`{config['model']}`" if config.get("model") else "a language model"
    digest = f" (sha256 {config['model_sha256'][:16]}...)" if config.get("model_sha256") else ""
    yield (
        f"Synthetic, written by {model}{digest}: {s['segments']:,} answers for segments of the documents above, second "
        f"attempts included. {s['accepted']:,} passed {_checks(config.get('alignment', {}))}, and "
        f"{s['documents']:,} documents made of them entered."
    )
    if styles := s.get("by_style"):
        rows = [
            (style.replace("_", " "), f"{entry['segments']:,}", f"{entry['accepted']:,}")
            for style, entry in sorted(styles.items())
        ]
        yield ""
        yield table(*rows, header=("style", "answers", "accepted"))
    if failed := s.get("rejected_by_check"):
        yield "\nThe first check that each of the others failed:\n"
        yield _counts(failed, "check", "answers")


def _checks(alignment: Mapping[str, Any]) -> str:
    """What the answers were held to."""
    learned = ["a learned check of meaning"] if alignment.get("fidelity_model") else []
    judge = ["a language model's judgement"] if alignment.get("judge") else []
    return " and ".join(["the exact rules of the alignment check", *learned, *judge])


def _tokens(tokens: Artifact) -> Iterator[str]:
    """What the network reads."""
    s = tokens.statistics
    yield "## Training tokens\n"
    yield (
        f"{s['tokens']:,} tokens to train on, documents that the mix repeats counted as often; README.md says how many "
        "were read:"
    )
    yield ""
    yield _counts({name: entry["tokens"] for name, entry in s.get("by_domain", {}).items()}, "domain", "tokens")
    if heldout := s.get("heldout"):
        count = sum(entry["tokens"] for entry in heldout.values())
        yield f"\n{count:,} tokens of other documents are held out and trained nothing."


def _dialogues(dialogues: Artifact) -> Iterator[str]:
    """What post-training reads."""
    s = dialogues.statistics
    yield "## Dialogues\n"
    yield (
        f"Synthetic: {s['dialogues']:,} dialogues of verifiable tasks and tool calls, made by programs and, where the "
        "table of players says so, by a model; held-out problems are apart by problem, not by phrasing."
    )
    if licences := s.get("licences"):
        yield "\nSome hold what tools of real servers declare and answered, under the licences that these state:"
        yield ""
        yield table(
            *((name, f"{count:,}") for name, count in sorted(licences.items())), header=("licence", "dialogues")
        )
    if players := s.get("players"):
        yield ""
        yield _counts(players, "player of the assistant", "dialogues")
    if found := s.get("by_environment"):
        rows = [
            (name, *(f"{parts.get(part, {}).get('dialogues', 0):,}" for part in ("train", "development", "test")))
            for name, parts in sorted(found.items())
        ]
        yield ""
        yield table(*rows, header=("environment", "to train on", "to steer by", "to measure once"))


def _counts(found: Mapping[str, int], what: str, unit: str) -> str:
    """A table, the largest first."""
    rows = sorted(found.items(), key=lambda row: (-row[1], row[0]))
    return table(*((name.replace("_", " "), f"{count:,}") for name, count in rows), header=(what, unit))
