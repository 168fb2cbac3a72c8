"""Personal data and secrets that curation should have replaced, looked for by a check of its own: few patterns, each
of which is hardly ever wrong. It asks whether the replacement ran and works, it does not repeat it."""

from __future__ import annotations

import re
from collections.abc import Collection

# A host that mail reaches; the reserved ones (RFC 2606) and those that manuals put in their place are left out.
_EMAIL = re.compile(
    r"(?<![\w.+%/:=-])[a-z0-9][a-z0-9._+-]{0,63}@(?!example\.|domain\.|email\.|localhost)[a-z0-9-]{2,63}(?:\.[a-z0-9-]{2,63}){0,3}"
    r"\.(?:com|org|net|edu|gov|de|fr|cn|jp|uk|io)(?![\w.@(-])",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"-----BEGIN (?:RSA |EC |DSA |OPENSSH |PGP )?PRIVATE KEY(?: BLOCK)?-----\s+[A-Za-z0-9+/]{40}"
    r"|\bAKIA(?!IOSFODNN7EXAMPLE)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bxox[bpars]-[0-9]{8,}-[A-Za-z0-9-]{10,}"
)
_EVERYBODYS = ("git", "hg", "svn")


def personal(text: str, kinds: Collection[str]) -> str:
    """The first e-mail address (EMAIL in `kinds`) or key (KEY) in `text`, its beginning alone; or an empty string."""
    if "EMAIL" in kinds and "@" in text:
        for found in _EMAIL.finditer(text):
            if found[0].partition("@")[0].lower() not in _EVERYBODYS and "example" not in found[0].lower():
                return found[0][:64]
    key = _KEY.search(text) if "KEY" in kinds else None
    return key[0][:24] if key else ""
