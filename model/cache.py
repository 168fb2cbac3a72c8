"""Where everything is kept that can be fetched or made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$OPENK2_CACHE, or openk2's folder in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("OPENK2_CACHE") or Path(base) / "openk2")
