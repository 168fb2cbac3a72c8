"""The router's scores of tokens in bfloat16, which keep the tokens as they are: the float32 copy is made again."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def router_scores(x_TD: Tensor, w_ED: Tensor) -> Tensor:
    """`model.moe.router_scores`."""
    scores_TE: Tensor = _Scores.apply(x_TD, w_ED)
    return scores_TE


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, w_ED: Tensor) -> Tensor:
        with torch.autocast(x_TD.device.type, enabled=False):
            scores_TE = F.linear(x_TD.float(), w_ED.float()).sigmoid_()
        ctx.save_for_backward(x_TD, w_ED, scores_TE)
        return scores_TE

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x_TD, w_ED, scores_TE = ctx.saved_tensors
        d_TE = grads[0] * scores_TE * (1 - scores_TE)
        return (d_TE @ w_ED.float()).to(x_TD.dtype), (d_TE.mT @ x_TD.float()).to(w_ED.dtype)
