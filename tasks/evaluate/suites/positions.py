"""Held-out loss by position in the window, as the model is and as it would be without YaRN.

Shapes: B windows, S positions.
"""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import torch

from model.transformer import Transformer
from tasks.artifact import Artifact
from tasks.evaluate.suites.config import Positions
from tasks.evaluate.suites.item import Measured, Unmeasurable
from tasks.evaluate.suites.subject import Network, Subject
from training.shards import TokenShards

FIRST = 16  # positions of the first bin; each bin after it is as long as all before it together


def measure(suite: Positions, subject: Subject, tokens: Artifact | None, seed: int) -> Measured:
    """Mean loss in bins of positions that double, over windows of one held-out document where it is long enough and of
    several in a row where not."""
    if not isinstance(subject, Network):
        raise Unmeasurable("a chat endpoint does not tell the loss of a text: measure the weights themselves")
    if tokens is None:
        raise Unmeasurable("it reads the held-out tokens of a root: run it with the root and preset they lie under")
    model = subject.model
    length = min(suite.longest, model.config.max_position_embeddings)
    windows_BS = _windows(tokens, suite.windows, length + 1, model.config.vocab_size)
    curves = {"loss": _losses(model, windows_BS)}
    yarn = model.config.rope_scaling
    if yarn is not None:
        window = model.config.max_position_embeddings
        model.set_yarn(None, window)
        try:
            curves["without_yarn"] = _losses(model, windows_BS)
        finally:
            model.set_yarn(yarn, window)
    edges = [0, *(FIRST << n for n in range(64) if FIRST << n < length), length]
    bins = [
        {"from": first, "to": stop} | {name: round(float(of_S[first:stop].mean()), 4) for name, of_S in curves.items()}
        for first, stop in pairwise(edges)
    ]
    trained = yarn.original_max_position_embeddings if yarn else length
    details = {"windows": len(windows_BS), "length": length, "trained_window": trained, "bins": bins}
    return Measured("nats by position", [], None, details)


def _windows(tokens: Artifact, count: int, length: int, vocabulary: int) -> torch.Tensor:
    """Windows of held-out tokens, each from another place, the longest documents' domains in turn (B, S)."""
    shards = [shard for shard in TokenShards(tokens.uri) if shard.split == "heldout"]
    places = range(max((shard.tokens // length for shard in shards), default=0))
    held = ((shard, place * length) for place in places for shard in shards if (place + 1) * length <= shard.tokens)
    # copies: what is mapped holds a file open
    found = [shard.read(at, at + length).astype(np.int64) for shard, at in islice(held, count)]
    if not found:
        raise Unmeasurable(f"no shard of the held-out split has {length:,} tokens in a row: lower `longest`")
    windows_BS = torch.from_numpy(np.stack(found))
    if int(windows_BS.max()) >= vocabulary:
        raise Unmeasurable("the held-out tokens are another tokenizer's: name the root and preset of this model")
    return windows_BS


@torch.inference_mode()
def _losses(model: Transformer, windows_BS: torch.Tensor) -> np.ndarray:
    """Mean loss of every position, float64 (S,). One window after the other: the longest is what memory holds."""
    rows = [-model.log_probs(model(row_S[None, :-1]).hidden_BSD, row_S[None, 1:])[0].double() for row_S in windows_BS]
    return torch.stack(rows).mean(0).numpy()
