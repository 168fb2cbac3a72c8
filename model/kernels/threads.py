"""Rows shared by threads, for kernels that run free of the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch


def share(rows: int, most: int, work: Callable[[int, int], object]) -> None:
    """`work(first, end)` on all rows, in as many parts as torch has threads, at most `most`; this thread takes one."""
    parts = max(1, min(torch.get_num_threads(), most))
    cuts = list(pairwise(rows * part // parts for part in range(parts + 1)))
    others = [_pool(os.getpid(), parts).submit(work, *cut) for cut in cuts[1:]]
    work(*cuts[0])
    for other in others:
        other.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Of this process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, "kernels")
