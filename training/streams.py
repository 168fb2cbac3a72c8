"""The streams of samples of a run: which samples each update reads, past what rollbacks and bad shards leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from training.cache import Cache, ShardError
from training.config import PretrainConfig
from training.loader import Batch, Loader, require
from training.mesh import Mesh
from training.schedule import Update
from training.shards import BadShard
from training.spikes import Rollback, mixes, position, windows


class Streams:
    """A loader for each stream of the plan. The plan's sample ids pass over the windows that rollbacks leave out."""

    def __init__(
        self, config: PretrainConfig, tokens: str, cache: Cache, mesh: Mesh, rollbacks: Iterable[Rollback]
    ) -> None:
        """Opens all streams now: a stage without data must not be found out days later."""
        self.config, self.plan, self.mesh = config, config.stages, mesh
        self.rollbacks = list(rollbacks)
        self.left_out = [windows(self.rollbacks, stream) for stream in range(self.plan.streams)]
        self.loaders = [self._open(stream, tokens, cache) for stream in range(len(self.left_out))]

    def _open(self, stream: int, tokens: str, cache: Cache) -> Loader:
        stage = next(span.stage for span in self.plan.spans if span.stream == stream)
        return Loader(
            tokens,
            "train",
            mixes(self.plan, stream, self.rollbacks),
            seed=self.config.seed,
            sequence_length=stage.sequence_length,
            kind=stage.samples,
            cache=cache,
            document_tokens_min=stage.document_tokens_min,
        )

    def close(self) -> None:
        """Stop prefetching."""
        for loader in self.loaders:
            loader.close()

    def first_sample(self, update: Update) -> int:
        """Id of an update's first sample; its others follow it."""
        return position(self.left_out[update.stream], update.first_sample)

    def read(self, update: Update) -> tuple[Batch, dict[str, str]]:
        """This rank's share of the update's samples, and which shards are skipped from them on, and why.

        Whatever bad shard some rank of the whole world meets, all skip, and all read again: the samples that took the
        place may be bad too. Ranks with one share read the same, then as before.

        Raises:
            BadShard: a shard cannot be read and `run.bad_shards` is `error`.
            ShardError: more than `run.most_skipped` of the samples lie in skipped shards.
        """
        share, first, run = self.mesh.data.share(update.stage.batch), self.first_sample(update), self.config.run
        loader, skipped = self.loaders[update.stream], dict[str, str]()
        while True:
            batch, met = None, None
            try:
                batch = loader.batch(first + share.start, len(share))
            except BadShard as error:
                if run.bad_shards == "error":
                    raise
                met = error.key, str(error)
            found = sorted(filter(None, self.mesh.world.gather(met))) if run.bad_shards == "skip" else []
            if batch is not None and not found:
                return batch, skipped
            for key, reason in found:
                skipped.setdefault(key, reason)
                loader.skip(key, first)
            if loader.skipped_share() > run.most_skipped:
                raise ShardError(
                    f"{loader.skipped_share():.1%} of the samples lie in skipped shards ({', '.join(loader.skipped)}) "
                    f"and run.most_skipped is {run.most_skipped:.1%}: repair them, or raise it"
                )

    def prefetch(self, updates: Iterable[Update]) -> None:
        """Begin to get the shards of the next updates."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for update in updates:
            share = self.mesh.data.share(update.stage.batch)
            spans.setdefault(update.stream, []).append((self.first_sample(update) + share.start, len(share)))
        for stream, found in spans.items():
            self.loaders[stream].prefetch(found)

    def skip(self, skipped: Iterable[dict[str, int]]) -> None:
        """Leave out bad shards as `skipped` says, by stream."""
        for loader, shards in zip(self.loaders, skipped, strict=False):
            for key, first in shards.items():
                loader.skip(key, first)

    @property
    def skipped(self) -> list[dict[str, int]]:
        """For each stream, the shards that it leaves out and from which sample on."""
        return [loader.skipped for loader in self.loaders]

    def end(self, stream: int) -> int:
        """Which sample of a stream comes after those that the whole run reads."""
        return self._after(stream, self._planned(stream))

    def _planned(self, stream: int) -> int:
        """How many samples of a stream the plan takes."""
        last = [span for span in self.plan.spans if span.stream == stream][-1]
        return last.first_sample + last.updates * last.stage.batch

    def epochs(self) -> list[dict[str, float]]:
        """How often each stream goes through each domain in the whole run, what is left out included."""
        return [loader.epochs(self.end(stream)) for stream, loader in enumerate(self.loaders)]

    def unread(self) -> tuple[list[str], float]:
        """The sources that the mixes ask for and of which no stream has a sample, the largest first, and the share of
        the tokens that lies in them."""
        drawn = {name for loader in self.loaders for name in loader.sources}
        found = {name for loader in self.loaders for name in loader.empty} - drawn
        share = self.loaders[0].share
        return sorted(found, key=lambda name: (-share([name]), name)), share(found)

    def require(self) -> None:
        """OrderError where the plan reads anything more often than `most_epochs` allows. What rollbacks leave out is
        not counted: a run that is planned to its limit could not go on after its first spike."""
        readings = [(loader, self._planned(stream)) for stream, loader in enumerate(self.loaders)]
        require(readings, self.config.most_epochs)

    def consumed(self, done: int) -> list[dict[str, Any]]:
        """The range of sample ids that each stage has taken after `done` updates; windows left out lie within."""
        return [
            {
                "stream": span.stream,
                "stage": span.stage.name,
                "sequence_length": span.stage.sequence_length,
                "first": position(self.left_out[span.stream], span.first_sample),
                "end": self._after(
                    span.stream, span.first_sample + min(span.updates, done - span.first_update) * span.stage.batch
                ),
            }
            for span in self.plan.spans
            if span.first_update < done
        ]

    def _after(self, stream: int, planned: int) -> int:
        """The id after the first `planned` samples of a stream that are read."""
        return position(self.left_out[stream], planned - 1) + 1
