"""`auto` among the precisions of a configuration: decided by whoever starts a job, before its stage has a fingerprint.

Nothing here needs torch; `model.precision` knows what a machine multiplies fast.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from model.config import Config

Precision = Literal["auto", "bfloat16", "float32"]
PRECISIONS = ("bfloat16", "float32")
FIELDS = {"dtype": "", "newton_schulz_dtype": "", "fidelity_dtype": "fidelity_model"}
"""Fields that are precisions, and the field without which one does not matter."""
C = TypeVar("C", bound=Config)


def precisions(config: Config, prefix: str = "") -> dict[str, str]:
    """Every precision of products in `config` and the configurations in it, by its dotted name."""
    found: dict[str, str] = {}
    for name, value in config:
        if isinstance(value, Config):
            found |= precisions(value, f"{prefix}{name}.")
        elif _matters(config, name):
            found[f"{prefix}{name}"] = value
    return found


def undecided(config: Config) -> list[str]:
    """The dotted names of the precisions that are still `auto`."""
    return [name for name, value in precisions(config).items() if value == "auto"]


def decided(config: C, precision: str) -> C:
    """`config` with `precision` wherever it says `auto`; the same object where it nowhere does."""
    if not undecided(config):
        return config
    changes: dict[str, Any] = {name: decided(value, precision) for name, value in config if isinstance(value, Config)}
    changes |= {name: precision for name, value in config if _matters(config, name) and value == "auto"}
    return config.model_copy(update=changes)


def _matters(config: Config, name: str) -> bool:
    return name in FIELDS and (not FIELDS[name] or bool(getattr(config, FIELDS[name])))
