"""Small token artifacts through the real writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from model.config import Config
from tasks.artifact import Artifact, Step
from tasks.tokens.table import Place, publish, put_shard


class Nothing(Config):
    """No literals."""


def publish_shards(
    step: Step, shards: Mapping[str, tuple[np.ndarray, pa.Table]], statistics: Mapping[str, Any]
) -> Artifact:
    """An artifact of these shards by `split/domain/source/name`, each with its index."""
    rows = []
    for key, (tokens_T, index) in shards.items():
        split, domain, source, name = key.split("/")
        rows.append(put_shard(step, Place(split, domain, source), name, tokens_T.astype("<u4").tofile, index))
    return publish(step, rows, statistics)


def folder_of(root: Path, shards: Mapping[str, tuple[np.ndarray, pa.Table]], statistics: Mapping[str, Any]) -> str:
    """The folder of such an artifact under `root`."""
    return publish_shards(Step("tokens", Nothing(), str(root)), shards, statistics).uri
