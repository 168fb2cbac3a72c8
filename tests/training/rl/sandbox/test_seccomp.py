"""The filter's tables against the kernel's own headers; what it does, test_attacks.py sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.rl.sandbox import seccomp

HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h"))
TABLES = [
    *(seccomp.REFUSED, seccomp.SETTING_UP, seccomp.ABSENT, seccomp.IDLE, seccomp.PRLIMIT),
    *(row[0] for row in (*seccomp.FLAGS, *seccomp.ARGUMENTS)),
]


@pytest.mark.parametrize("column", [0, 1])
def test_numbers_are_the_kernels(column: int) -> None:
    if not HEADERS[column].exists():
        pytest.skip("no headers of the kernel here (`apt-get install linux-libc-dev`)")
    text = HEADERS[column].read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    compared = 0
    for table in TABLES:
        for name, numbers in table.items():
            if name in known:
                assert numbers[column] == known[name], name
                compared += 1
    assert compared > 70


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_a_filter_fits_the_kernel(machine: str) -> None:
    """Whole steps, fewer than the kernel takes, and every jump lands within."""
    for steps in (seccomp.fork_server(machine), seccomp.program(machine)):
        count = len(steps) // 8
        assert len(steps) % 8 == 0
        assert count < 4096
        for place in range(count):
            code, met, not_met = steps[8 * place], steps[8 * place + 2], steps[8 * place + 3]
            if code & 7 == 5:
                assert place + 1 + max(met, not_met) < count
