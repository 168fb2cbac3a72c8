"""Reading a global batch by a policy on bad shards: every rank leaves out the same ones from the same sample on."""

from __future__ import annotations

from training.cache import ShardError
from training.config import PretrainRunConfig
from training.loader import Batch, Loader
from training.parallel import World
from training.shards import BadShard


def read(
    loader: Loader, share: range, world: World, first: int, run: PretrainRunConfig
) -> tuple[Batch, dict[str, str]]:
    """This rank's share of the samples from `first` on, and why which shards are skipped from there on.

    Whatever bad shard some rank of the whole `world` meets, all skip, and all read again: the samples that took the
    place may be bad too. Ranks with one share read the same, then as before.

    Raises:
        BadShard: a shard cannot be read and `run.bad_shards` is `error`.
        ShardError: more than `run.most_skipped` of the samples lie in skipped shards.
    """
    if run.bad_shards == "error":
        return loader.batch(first + share.start, len(share)), {}
    skipped: dict[str, str] = {}
    while True:
        batch, met = None, None
        try:
            batch = loader.batch(first + share.start, len(share))
        except BadShard as error:
            met = error.key, str(error)
        found = sorted(filter(None, world.gather(met)))
        if batch is not None and not found:
            return batch, skipped
        for key, reason in found:
            skipped.setdefault(key, reason)
            loader.skip(key, first)
        if loader.skipped_share() > run.most_skipped:
            raise ShardError(
                f"{loader.skipped_share():.1%} of the samples lie in skipped shards ({', '.join(loader.skipped)}) and "
                f"run.most_skipped is {run.most_skipped:.1%}: repair them, or raise it"
            )
