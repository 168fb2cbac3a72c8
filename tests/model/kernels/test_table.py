"""The table: every row leads somewhere, conditions are those of the machine, and the switch takes the plain forms."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model import attention, decode, head, memory, moe, quantize, rope
from model.kernels import swiglu, table
from model.kernels.table import COMPILED, TABLE, VARIABLE, chosen
from model.sizes import model_preset
from model.transformer import Transformer

FILES = (attention, decode, head, memory, moe, quantize, rope, swiglu)
PLAIN = {form.operation: function for form in TABLE for file in FILES if (function := vars(file).get(form.operation))}


@pytest.mark.parametrize("form", TABLE, ids=lambda form: f"{form.operation}, {form.where}")
def test_a_form_is_called_as_the_plain_one_is(form):
    plain = inspect.signature(PLAIN[form.operation])
    if form.where != COMPILED:
        file, _, name = form.where.partition(":")
        other = inspect.signature(getattr(import_module(f"model.kernels.{file}"), name))
        assert len(other.parameters) == len(plain.parameters)
        kept = [each.default for each in plain.parameters.values()]
        assert [each.default for each in other.parameters.values()] == kept


def forms(name: str, *given: Any) -> list[str]:
    return [form.where for form in TABLE if form.operation == name and form.serves(*given)]


def test_conditions_follow_device_and_dtype():
    x, counts = torch.ones(3, 8, dtype=torch.bfloat16), torch.tensor([3])
    assert forms("grouped_linear", x, x[None], counts) == ["grouped_linear:padded"]
    for other in (x.float(), x.half(), x.to("meta"), x[:0]):
        assert forms("grouped_linear", other, x[None], counts) == []
    assert forms("rms_norm", x.float(), x[0], 1e-6, torch.bfloat16) == ["rms_norm:rms_norm"]
    assert forms("rms_norm", x.double(), x[0], 1e-6, torch.float64) == []
    assert forms("rms_norm", x, x[0], 1e-6, torch.float16) == []
    assert forms("router_scores", x, x) == ["router_scores:router_scores"]
    assert forms("router_scores", x.float(), x) == []


def test_what_a_log_says_is_what_the_table_has(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert {"grouped_linear", "rms_norm"} <= set(chosen("cpu", torch.bfloat16))
    assert "grouped_linear" not in chosen("cpu", torch.float32)
    assert {"rotate_pairs", "document_mask"} <= set(chosen("cuda", torch.bfloat16)) - set(chosen("cpu", torch.bfloat16))
    monkeypatch.setenv(VARIABLE, "all")
    assert chosen("cpu", torch.bfloat16) == []


def test_the_switch_takes_the_plain_form_of_what_it_names(monkeypatch):
    x, weight = torch.randn(5, 8), torch.rand(8)
    asked: list[str] = []
    monkeypatch.setattr(table, "import_module", lambda name: asked.append(name) or import_module(name))

    def names(value: str) -> bool:
        monkeypatch.setenv(VARIABLE, value)
        return table.plainly("rms_norm")

    assert names("all")
    assert names("silu_times,rms_norm")
    assert not names("silu_times")
    assert not names("")
    assert names("silu_times, rms_norm")
    for unknown in ("rms_nrom", "silu_times,rms_nrom", "ALL"):
        with pytest.raises(ValueError, match="names no operation by"):
            names(unknown)
    monkeypatch.setenv(VARIABLE, "all")
    inverse = x.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
    assert torch.equal(attention.rms_norm(x, weight, 1e-6, torch.float32), x * inverse * weight)
    assert asked == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_network_of_faster_forms_is_the_plain_one(monkeypatch, dtype):
    """Loss, balance loss, maxima and gradients over packed documents and padding. Every token visits every expert: a
    rounding to bfloat16 would send some elsewhere."""
    model = Transformer(model_preset("tiny", initializer_range=0.05, num_experts_per_tok=8), seed=1)
    tokens = torch.randint(0, 512, (3, 150), generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[0] * 70 + [1] * 80, [0] * 150, [0] * 100 + [-1] * 50])
    found = []
    for value in ("", "all"):
        monkeypatch.setenv(VARIABLE, value)
        model.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            out = model(tokens, document_ids_BS=ids, max_logits=True)
            loss = model.loss(out.hidden_BSD[:, :-1], tokens[:, 1:]) + out.aux_loss
        loss.backward()
        assert out.max_logits_LH is not None
        found.append([loss.detach(), out.max_logits_LH, *(p.grad for p in model.parameters())])
    if dtype == torch.float32:
        for mine, other in zip(*found, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))
    else:
        torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-3, atol=0)
        for mine, other in zip(*(each[2:] for each in found), strict=True):
            assert F.cosine_similarity(mine.flatten(), other.flatten(), dim=0) > 0.99


# ----------------------------------------------------------------------------------------------- what a GPU compiles


def arguments(name: str, rows: int) -> tuple[Any, ...]:
    draw = torch.Generator().manual_seed(rows)
    x, y, z = torch.randn(3, rows, 200, generator=draw)
    return {
        "product": (x, y),
        "product_gradients": (x, y, z),
        "round_to_fp8": (x.bfloat16(),),
        "expand_fp8": (*memory.round_to_fp8(x), torch.bfloat16),
        "rotate_pairs": (x.view(1, rows, 5, 40), y[None, :, :20].contiguous(), z[None, :, :20].contiguous()),
    }[name]


def test_a_compiler_takes_every_such_form_whole_and_once_for_all_rows():
    """Traced without a break by the compiler's front end; its back ends for C++ and Triton are not asked here."""
    for name in sorted({form.operation for form in TABLE if form.where == COMPILED}):
        function: Any = PLAIN[name]
        graphs: list[torch.fx.GraphModule] = []

        def count(graph: torch.fx.GraphModule, _: Any, graphs: list[torch.fx.GraphModule] = graphs) -> Any:
            graphs.append(graph)
            return graph.forward

        torch._dynamo.reset()
        compiled = torch.compile(function.__wrapped__, backend=count, fullgraph=True, dynamic=True)
        for rows in (7, 130, 64):
            given = arguments(name, rows)
            found, wanted = compiled(*given), function.__wrapped__(*given)
            for mine, other in zip(*(_tensors(each) for each in (found, wanted)), strict=True):
                torch.testing.assert_close(mine.float(), other.float())
        assert len(graphs) == 1, name
    torch._dynamo.reset()


def _tensors(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)
