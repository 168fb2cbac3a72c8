"""Which threshold a check's score is held to, and where a preset sets it: what the stage publishes beside its counts.

A check whose score has no threshold of its own (a number kept or lost) is not here; its verdict is all or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.prompts import Style, details


@dataclass(frozen=True)
class Limit:
    """One threshold."""

    field: str
    """The field of `AlignmentConfig` that sets it."""
    side: Literal["least", "most", "band"]
    """What the field holds: the smallest score that passes, the greatest, or both."""


LIMITS: dict[str, Limit] = {
    "length": Limit("length", "band"),
    "repetition": Limit("repeated", "most"),
    "copied": Limit("copied", "most"),
    "seam": Limit("seam", "most"),
    "sentencewise": Limit("sentencewise", "most"),
    "ahead": Limit("ahead", "most"),
    "answerable": Limit("answerable", "least"),
    "cosine": Limit("cosine", "least"),
    "fidelity": Limit("fidelity", "least"),
}
"""By the name of the check."""


def thresholds(config: AlignmentConfig, styles: Mapping[str, Style]) -> dict[str, dict[str, Any]]:
    """check -> {field, least, most}, None on a side without a threshold; `by_style` has the bands of styles that have
    one of their own (of a translation's, which differ by language, the outermost ends), `by_detail` those of levels of
    detail; where both have one the outer ends hold."""
    found: dict[str, dict[str, Any]] = {}
    for check, limit in LIMITS.items():
        value = getattr(config, limit.field)
        least, most = {"least": (value, None), "most": (None, value)}.get(limit.side) or value
        found[check] = {"field": f"rephrase.alignment.{limit.field}", "least": least, "most": most}
    bands = {name: list(style.length) for name, style in sorted(styles.items()) if style.length}
    # a translation's band is its language's, which a score does not name: the outer limits of all
    languages = config.translation_length.values()
    outermost = [min(least for least, _ in languages), max(most for _, most in languages)]
    bands |= {name: outermost for name, style in sorted(styles.items()) if style.translates}
    found["length"]["by_style"] = bands
    found["length"]["by_detail"] = {name: list(manner.length) for name, manner in details().items() if manner.length}
    return found
