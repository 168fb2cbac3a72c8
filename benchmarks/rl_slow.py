"""RL's budgets, length reward and temperature at a third of the study's learning rates: docs/claims/rl.md.

    python -m benchmarks.rl_slow [--work slow] [--out docs/claims/rl] [--tables]

Seeds, start and measurements are those of `benchmarks.rl_ablations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.rl_ablations import ALIKE, BUDGET, SEEDS, SLOW, TIGHT, Study, carry_out
from benchmarks.studies import Row

LENGTH = {"budget": BUDGET, "length_weight": 0.5}
ARMS: Mapping[str, Mapping[str, Any]] = {
    ALIKE: {},
    **{f"budget of {budget}": {"rewards": {"budget": budget}} for budget in (TIGHT, 2 * TIGHT)},
    "length reward": {"rewards": {**LENGTH, "length_from": 0.0}},
    "length reward, second half": {"rewards": {**LENGTH, "length_from": 0.5}},
    "temperature 1.0 to 0.8": {"temperature": [1.0, 0.8]},
}
"""What differs from all alike at these rates, by arm."""


def runs(study: Study) -> Iterator[Row]:
    """Every arm with every seed."""
    for seed in SEEDS:
        for arm, changes in ARMS.items():
            yield study.run(arm, SLOW | changes, seed)


if __name__ == "__main__":
    carry_out(__doc__, "slow", "slow.csv", runs, lambda rows: "")
