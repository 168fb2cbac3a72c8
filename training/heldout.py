"""Loss on held-out text by domain, for whatever is being trained."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from training.cache import Cache
from training.engine import MicroBatch
from training.loader import Batch, Loader
from training.schedule import unmeasured_words
from training.shards import BadShard, TokenShards, count_windows

if TYPE_CHECKING:
    from training.trainer import Trainer

log = logging.getLogger(__name__)

Parts = Callable[[Batch, int], list[MicroBatch]]
"""Micro-batches of a rank's share of a batch of so many samples."""


class HeldoutText:
    """The held-out split of the tokens artifact at `uri`; the ranks of a run share its samples."""

    def __init__(self, trainer: Trainer, uri: str, cache: Cache | None = None, skips: bool = False) -> None:
        """`skips` leaves out shards that cannot be read. Raises ShardError where the artifact has no such split."""
        self.trainer, self.uri, self.cache, self.skips = trainer, uri, cache or Cache.from_environment(), skips
        self.shards = TokenShards(uri, self.cache)
        self.shards.streams("heldout")
        self.skipped: dict[str, str] = {}
        """Key of a shard that is left out -> why."""
        self._loaders: dict[tuple[str, int], tuple[Loader, int] | None] = {}

    def skip(self, skipped: Mapping[str, str]) -> None:
        """Leave out these shards, and no others."""
        self.skipped = dict(skipped)
        self._loaders.clear()

    def losses(self, length: int, most: int, parts: Parts) -> dict[str, float]:
        """Mean cross-entropy of at most so many samples of `length` tokens, by domain; the model is left as it was. A
        domain too small for one sample, or all of whose shards are skipped, has no loss to show. Whatever bad shard
        some rank meets, all skip.

        Raises:
            BadShard: a shard cannot be read and none is to be skipped.
        """
        trainer, losses = self.trainer, dict[str, float]()
        trainer.model.eval()
        for domain in sorted({domain for domain, _ in self.shards.streams("heldout")}):
            while (reading := self._reading(domain, length)) is not None:
                loader, samples = reading[0], min(reading[1], most)
                share, batch, met = trainer.mesh.data.share(samples), None, None
                try:
                    batch = loader.batch(share.start, len(share))
                except BadShard as error:
                    if not self.skips:
                        raise
                    met = error.key, str(error)
                found = sorted(filter(None, trainer.world.gather(met))) if self.skips else []
                if batch is not None and not found:
                    loss = trainer.engine.evaluate(parts(batch, samples)).loss
                    losses[domain] = float(trainer.world.all_reduce(loss))
                    break
                self.skip(dict(found) | self.skipped)
        return losses

    def warn_without(self, length: int, what: str) -> None:
        """Warn, on one rank, where no domain has a sample of `length` tokens, and so no loss to show."""
        if self.trainer.mesh.world.rank == 0 and not any(self.shards.windows("heldout", length).values()):
            log.warning("%s %s", what, unmeasured_words(length))

    def _reading(self, domain: str, length: int) -> tuple[Loader, int] | None:
        """What reads a domain past the skipped shards, and how many samples it has; None where there are none."""
        if (domain, length) not in self._loaders:
            mix, left, bad = {domain: 1.0}, 0, list[str]()
            for (name, source), stream in self.shards.streams("heldout").items():
                if name == domain:
                    keys = stream.keys()
                    here = [key not in self.skipped for key in keys]
                    windows = int(count_windows(stream.tokens_N, length)[here].sum())
                    if windows:
                        bad += [key for key, good in zip(keys, here, strict=True) if not good]
                    else:
                        mix[f"{domain}/{source}"] = 0.0  # a loader cannot skip all shards of a source
                    left += windows
            loader = None
            if left:
                loader = Loader(self.uri, "heldout", mix, seed=0, sequence_length=length, cache=self.cache)
                for key in bad:
                    loader.skip(key, 0)
            self._loaders[domain, length] = None if loader is None else (loader, left)
        return self._loaders[domain, length]
