"""The one table of faster forms: of which operation, where, and when.

The model's files hold one plain torch form of every operation, marked `@operation`. Calling it runs the first form of
the table that serves its arguments, by device, dtype and instruction set, and the plain form where none does. What each
form gains is in docs/model.md; one that gains less than 5 % of a stage is deleted.

`OPENK2_REFERENCE=all` in the environment runs the plain forms everywhere, `OPENK2_REFERENCE=rms_norm,silu_times` those
of these operations: to compare, and to measure (benchmarks/kernels.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from model.kernels import native
from model.precision import compute_dtype

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE = "OPENK2_REFERENCE"
COMPILED = "torch.compile"
"""The form is the plain one, compiled for any number of rows."""


class Form(NamedTuple):
    """A row of the table."""

    operation: str
    """The name of the plain form."""
    where: str
    """`file:function` in this package, imported when it is first wanted; or `COMPILED`."""
    device: str = ""
    """Of the first tensor: "cpu", where there must be something in it, or "cuda"; anywhere by default."""
    dtypes: tuple[torch.dtype, ...] = ()
    """Of the first tensor; any by default."""
    when: Callable[..., bool] = lambda *given, **named: True
    """What else must hold of the arguments, which are those of the operation, or of the machine."""

    def serves(self, *given: Any, **named: Any) -> bool:
        """Whether it is for these arguments."""
        if self.device or self.dtypes:
            x: Tensor = given[0]
            if self.dtypes and x.dtype not in self.dtypes:
                return False
            if self.device and (x.device.type != self.device or (self.device == "cpu" and not x.numel())):
                return False
        return self.when(*given, **named)


def known_output(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> bool:
    """The norm's kernels write these."""
    return dtype in (FLOAT32, BFLOAT16)


def not_for_flash(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Any = None, max_logits: bool = False) -> bool:
    """Flash attention would see too much, or hide the logits."""
    return mask is not None or max_logits


def aligned(x_NI: Tensor, w_EOI: Tensor, counts_E: Tensor) -> bool:
    """grouped_mm takes matrices whose rows lie multiples of 16 bytes apart."""
    return w_EOI.dtype == BFLOAT16 and not any(width % 8 for width in w_EOI.shape[1:])


def fits_native(model: Any) -> bool:
    """It computes in bfloat16 where there is AVX512-BF16, or in float32 where there is AVX2, there is a C compiler, its
    sizes fill the kernels' blocks, and its queries have a latent."""
    weight, config = model.embed_tokens.weight, model.config
    fits = config.num_attention_heads % native.HEADS == 0 and config.q_lora_rank is not None
    fits &= not any(size % native.TILE for size in (config.hidden_size, config.moe_intermediate_size))
    return fits and weight.device.type == "cpu" and native.kernels(compute_dtype(weight)) is not None


def compiled_c(weight: Tensor) -> bool:
    """There is AVX2 and a C compiler."""
    return native.kernels(FLOAT32) is not None


FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16

# bfloat16 on a CPU is what a run computes in where the machine multiplies it fast (`model.precision`).
TABLE = (
    Form("rms_norm", "rms_norm:rms_norm", "cpu", (FLOAT32, BFLOAT16), known_output),
    Form("rms_norm", "gpu:rms_norm", "cuda"),
    Form("causal_attention", "blockwise_attention:causal_attention", "cpu"),
    Form("causal_attention", "gpu:document_attention", "cuda", (), not_for_flash),
    Form("causal_attention", "gpu:flash_attention", "cuda"),
    Form("document_mask", "gpu:document_mask", "cuda"),
    Form("rotate_pairs", COMPILED, "cuda"),
    Form("silu_times", "swiglu:silu_times"),
    Form("product", COMPILED, "cuda"),
    Form("product_gradients", COMPILED, "cuda"),
    Form("router_scores", "router_scores:router_scores", dtypes=(BFLOAT16,)),
    Form("grouped_linear", "grouped_linear:padded", "cpu", (BFLOAT16,)),
    Form("grouped_linear", "grouped_linear:grouped_mm", "cuda", (BFLOAT16,), aligned),
    Form("cross_entropy", "cross_entropy:cross_entropy"),
    Form("round_to_fp8", COMPILED, "cuda"),
    Form("expand_fp8", COMPILED, "cuda"),
    Form("round_to_int4", "native:round_to_int4", "cpu", (FLOAT32,), compiled_c),
    Form("decoder", "decoder:decoder", when=fits_native),
)


def chosen(device: str, dtype: torch.dtype) -> list[str]:
    """The operations that take a faster form of tensors on `device` in `dtype`, for a log."""
    rows = [form for form in TABLE if form.device in ("", device) and (not form.dtypes or dtype in form.dtypes)]
    return sorted({form.operation for form in rows if not plainly(form.operation)})


def operation(plain: Callable[P, R]) -> Callable[P, R]:
    """Marks the plain form of an operation: calls take a faster form where the table has one for their arguments."""
    forms = [form for form in TABLE if form.operation == plain.__name__]

    @cache
    def function(where: str) -> Callable[..., R]:
        if where == COMPILED:
            return torch.compile(plain, dynamic=True)
        file, _, name = where.partition(":")
        return getattr(import_module(f"model.kernels.{file}"), name)

    @wraps(plain)
    def call(*given: P.args, **named: P.kwargs) -> R:
        if not plainly(plain.__name__):
            for form in forms:
                if form.serves(*given, **named):
                    return function(form.where)(*given, **named)
        return plain(*given, **named)

    return call


def plainly(name: str) -> bool:
    """Whether the environment asks for the plain form of an operation. ValueError where it asks for what is none: the
    faster forms would be taken for plain ones."""
    asked = _asked(os.environ.get(VARIABLE, ""))
    return "all" in asked or name in asked


@cache
def _asked(names: str) -> frozenset[str]:
    asked, known = {name.strip() for name in names.split(",")} - {""}, {form.operation for form in TABLE}
    if unknown := sorted(asked - known - {"all"}):
        raise ValueError(
            f"{VARIABLE} names no operation by {', '.join(unknown)}: say all, or {', '.join(sorted(known))}"
        )
    return frozenset(asked)
