"""AdamW whose state is cut over the ranks that hold the parameters: ZeRO-1 by flat ranges.

The parameters lie one behind the other, as if in one long vector, and every rank owns an equal range of it: a parameter
may straddle two ranks. The owner alone keeps the moments (and the float32 master where the weight is bfloat16).

Source: Loshchilov and Hutter, arXiv 1711.05101; the constants are K2's (report 2.5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from training.config import MuonClipConfig
from training.owners import Pieces
from training.parallel import World

PACKED = 1 << 20  # pieces of fewer elements travel together, longer ones straight from weight to weight


@dataclass
class Range:
    """The elements `start` to `stop` of a parameter, flat."""

    name: str
    parameter: nn.Parameter
    start: int
    stop: int
    first: int
    """Global index of `start`: where experts are cut over ranks, the parameter is a part of a longer one."""
    state: dict[str, Tensor] = field(default_factory=dict)
    """The owner's, float32: `mean`, `square` and, of a bfloat16 weight, `master`."""

    def of(self, tensor: Tensor) -> Tensor:
        """This piece of a tensor of the parameter's shape."""
        return tensor.reshape(-1)[self.start : self.stop]

    @property
    def weight(self) -> Tensor:
        """This piece of the weight itself."""
        return self.parameter.data.view(-1)[self.start : self.stop]

    @property
    def gradient(self) -> Tensor:
        """This piece of the gradient; zeros where it is missing, which the step's check reports."""
        gradient = self.parameter.grad
        return torch.zeros_like(self.weight) if gradient is None else self.of(gradient)


class AdamW:
    """The rule of embeddings, head, norms and biases. Decay acts on what has two or more dimensions."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        config: MuonClipConfig,
        holders: World,
        experts: Mapping[str, int] | None = None,
    ) -> None:
        """`holders` are the ranks that have these parameters alike; `experts` as for `MuonClip`."""
        self.config, self.holders = config, holders
        total = sum(parameter.numel() for parameter in parameters.values())
        cuts = [total * rank // holders.size for rank in range(holders.size + 1)]
        self.pieces: list[list[Range]] = [[] for _ in range(holders.size)]
        """By rank."""
        before = 0
        for name, parameter in parameters.items():
            for rank, pieces in enumerate(self.pieces):
                start, stop = max(cuts[rank] - before, 0), min(cuts[rank + 1] - before, parameter.numel())
                if start < stop:
                    before_all = (experts or {}).get(name, 0) * parameter[:1].numel()
                    pieces.append(Range(name, parameter, start, stop, before_all + start))
            before += parameter.numel()
        self.own = self.pieces[holders.rank]
        for piece in self.own:
            empty = torch.zeros_like(piece.weight, dtype=torch.float32)
            piece.state = {"mean": empty, "square": empty.clone()}
            if piece.parameter.dtype != torch.float32:
                piece.state["master"] = piece.weight.float()

    def bad(self) -> list[tuple[Range, Tensor]]:
        """Every piece of this rank, and whether its gradient holds a NaN or an infinity."""
        return [(piece, ~torch.isfinite(torch.linalg.vector_norm(piece.gradient))) for piece in self.own]

    def step(self, lr: float, step: int, factors: Mapping[Tensor, Tensor]) -> Callable[[], None]:
        """Update this rank's range and begin to exchange ranges; the function returned waits for those of the others.

        `factors` are QK-Clip's, of the parameter's shape; they act on masters here, on other weights later.
        """
        (beta1, beta2), epsilon = self.config.betas, self.config.adamw_epsilon
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        for piece in self.own:
            mean, square, gradient = piece.state["mean"], piece.state["square"], piece.gradient.float()
            weight = piece.state.get("master", piece.weight)
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            if piece.parameter.ndim >= 2:
                weight.mul_(1 - lr * self.config.weight_decay)
            weight.addcdiv_(mean, (square / correction2).sqrt_().add_(epsilon), value=-lr / correction1)
            if "master" in piece.state:
                if piece.parameter in factors:
                    weight.mul_(piece.of(factors[piece.parameter]))
                piece.weight.copy_(weight)
        return self._exchange()

    def _exchange(self) -> Callable[[], None]:
        if self.holders.size == 1:
            return lambda: None
        waits, packets = [], []
        for rank, pieces in enumerate(self.pieces):
            packed: dict[torch.dtype, list[Tensor]] = {}
            for piece in pieces:
                if piece.stop - piece.start < PACKED:
                    packed.setdefault(piece.parameter.dtype, []).append(piece.weight)
                else:
                    waits.append(self.holders.broadcast(piece.weight, rank))
            for weights in packed.values():
                packet = torch.cat(weights)
                waits.append(self.holders.broadcast(packet, rank))
                packets.append((packet, weights))

        def wait() -> None:
            for arrived in waits:
                arrived()
            for packet, weights in packets:
                for weight, value in zip(weights, packet.split([len(each) for each in weights]), strict=True):
                    weight.copy_(value)

        return wait

    def state_dict(self) -> dict[str, Tensor]:
        """This rank's pieces: `mean/NAME/FIRST`, `square/NAME/FIRST`, `master/NAME/FIRST`, flat from element FIRST."""
        return {
            f"{kind}/{piece.name}/{piece.first}": value for piece in self.own for kind, value in piece.state.items()
        }

    def load(self, pieces: Pieces) -> None:
        """Take this rank's ranges out of a state, however it was cut."""
        for piece in self.own:
            for kind, target in piece.state.items():
                pieces.read(f"{kind}/{piece.name}", piece.first, target)
