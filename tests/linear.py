"""Whether work grows with its input and not with its square, on a machine of any speed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ROUNDS = 3
TICK = 0.05  # seconds: what work that takes next to nothing may vary by


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """`work(4 * size)` takes some four times what `work(size)` does; quadratic work takes sixteen times as much. CPU
    time, the least of some rounds: another process on the same machine only ever adds to it. Choose a size at which
    quadratic work would take far more than a tick of the clock."""
    once = min(_seconds(work, size) for _ in range(ROUNDS))
    for _ in range(ROUNDS):
        if _seconds(work, 4 * size) < 10 * once + TICK:
            return
    raise AssertionError(f"four times as much work took more than ten times {once:.4f} CPU-seconds")


def _seconds(work: Callable[[int], object], size: int) -> float:
    gc.disable()  # it would look through whatever the tests before have left
    try:
        began = time.process_time()
        work(size)
        return time.process_time() - began
    finally:
        gc.enable()
