"""Functions that a GPU compiles: a CPU runs them as written, and a compiler takes each whole, whatever the rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from model import memory, moe, rope
from model.fused import fused


def arguments(name: str, rows: int) -> tuple[Any, ...]:
    draw = torch.Generator().manual_seed(rows)
    x, y, z = torch.randn(3, rows, 200, generator=draw)
    return {
        "_silu_times": (x, y),
        "_silu_times_backward": (x, y, z),
        "_rounded": (x.bfloat16(),),
        "_expanded": (*memory._rounded(x), torch.bfloat16),
        "_turned": (x.view(1, rows, 5, 40), y[None, :, :20].contiguous(), z[None, :, :20].contiguous()),
    }[name]


@pytest.mark.parametrize(
    ("room", "name"),
    [
        (moe, "_silu_times"),
        (moe, "_silu_times_backward"),
        (memory, "_rounded"),
        (memory, "_expanded"),
        (rope, "_turned"),
    ],
)
def test_a_compiler_takes_it_whole_and_once_for_all_rows(room, name):
    """Traced without a break by the compiler's front end; its back ends for C++ and Triton are not asked here."""
    function = getattr(room, name).__wrapped__
    graphs = []

    def count(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=count, fullgraph=True, dynamic=True)
    for rows in (7, 130, 64):
        given = arguments(name, rows)
        found, wanted = compiled(*given), function(*given)
        for mine, other in zip(*((t if isinstance(t, tuple) else (t,)) for t in (found, wanted)), strict=True):
            torch.testing.assert_close(mine.float(), other.float())
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_a_cpu_calls_the_function_itself():
    calls = []

    @fused
    def twice(x: torch.Tensor, name: str) -> torch.Tensor:
        calls.append(name)
        return 2 * x

    for name in ("one", "two"):
        assert twice(torch.ones(1), name) == 2
    assert calls == ["one", "two"]
