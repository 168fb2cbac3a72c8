"""Loss on held-out text by domain, for whatever is being trained."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from training.cache import Cache
from training.engine import MicroBatch
from training.loader import Batch, Loader
from training.shards import TokenShards

if TYPE_CHECKING:
    from training.trainer import Trainer

log = logging.getLogger(__name__)

Parts = Callable[[Batch, int], list[MicroBatch]]
"""Micro-batches of a rank's share of a batch of so many samples."""


class HeldoutText:
    """The held-out split of the tokens artifact at `uri`; the ranks of a run share its samples."""

    def __init__(self, trainer: Trainer, uri: str, cache: Cache | None = None) -> None:
        """Raises ShardError where the artifact has no such split."""
        self.trainer, self.uri, self.cache = trainer, uri, cache or Cache.from_environment()
        self.shards = TokenShards(uri, self.cache)
        self.shards.streams("heldout")
        self._loaders: dict[tuple[str, int], Loader] = {}

    def losses(self, length: int, most: int, parts: Parts) -> dict[str, float]:
        """Mean cross-entropy of at most so many samples of `length` tokens, by domain; the model is left as it was. A
        domain too small for one sample has no loss to show."""
        trainer, losses = self.trainer, {}
        trainer.model.eval()
        for domain, windows in sorted(self.shards.windows("heldout", length).items()):
            if not windows:
                continue
            key = (domain, length)
            if key not in self._loaders:
                self._loaders[key] = Loader(
                    self.uri, "heldout", {domain: 1.0}, seed=0, sequence_length=length, cache=self.cache
                )
            samples = min(windows, most)
            share = trainer.mesh.data.share(samples)
            batch = self._loaders[key].batch(share.start, len(share))
            found = trainer.engine.evaluate(parts(batch, samples)).loss
            losses[domain] = float(trainer.world.all_reduce(found))
        return losses

    def warn_without(self, length: int, what: str) -> None:
        """Warn, on one rank, where no domain has a sample of `length` tokens, and so no loss to show."""
        if self.trainer.mesh.world.rank == 0 and not any(self.shards.windows("heldout", length).values()):
            log.warning(
                "%s will have no held-out loss: no held-out shard has %d tokens, a sample and its last target; a "
                "larger tokens.heldout_fraction or tokens.batch_bytes makes them larger",
                *(what, length + 1),
            )
