"""Which families RL trains on, by the pass rate that SFT left in each (K2 report 3.2.1: moderate difficulty).

Family by family: pooled, one that is never right and one that nearly always is look like two of moderate difficulty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from training.cache import read_manifest

NEAR = 0.25
"""Weight of a family outside the band. One that is mastered has little to win, and is lost without practice: in a run
of `evening` calls that were due fell from 78 to 6 % while not calling was practised."""
REACH = (0.05, 0.8)
"""Pass rates below which a family is left out, with nothing to go by, and above which it is mastered."""


def select(rates: Mapping[str, float], band: tuple[float, float]) -> dict[str, dict[str, Any]]:
    """For each family its `pass_rate`, its `weight` in RL and `because`. Where each is out of reach or mastered, the
    one that is nearest to the band has the full weight."""
    low, high = band
    found: dict[str, dict[str, Any]] = {}
    for name, rate in sorted(rates.items()):
        if low <= rate <= high:
            weight, because = 1.0, "in the band"
        elif rate < REACH[0]:
            weight, because = 0.0, "out of reach: hardly ever right"
        elif rate > REACH[1]:
            weight, because = NEAR, "mastered: hardly ever wrong, and kept in practice"
        else:
            weight, because = NEAR, "below the band" if rate < low else "above the band"
        found[name] = {"pass_rate": rate, "weight": weight, "because": because}
    if found and not any(REACH[0] <= rate <= REACH[1] for rate in rates.values()):
        nearest = min(found, key=lambda name: max(low - rates[name], rates[name] - high))
        if found[nearest]["weight"] < 1:
            found[nearest] |= {"weight": 1.0, "because": "outside the band, and the nearest to it"}
    return found


def selected(sft: str, shares: Mapping[str, float], made: Collection[str] = ()) -> dict[str, float]:
    """Shares of prompts by environment for RL: those that its configuration asks for, times the weights in the SFT
    artifact at `sft`. Empty where neither says anything.

    Args:
        made: environments that SFT knows nothing of (`rl.sets`). Their shares stand as they are asked for, what is
            asked for a whole set goes to its environments in equal parts, and where nothing is asked for they have 1.
    """
    sets = Counter(name.partition(".")[0] for name in made)
    new = {name: _share(name, shares, sets) for name in made}
    asked = {name: share for name, share in shares.items() if name not in new and name not in sets}
    if selection := read_manifest(sft)["statistics"].get("selection"):
        weights = {name: entry["weight"] for name, entry in selection.items() if not shares or name in asked}
        found = {name: weight * asked.get(name, 1.0) for name, weight in weights.items()}
        asked = found if any(found.values()) else asked
    return {**asked, **new} if asked or shares else {}


def _share(name: str, shares: Mapping[str, float], sets: Mapping[str, int]) -> float:
    whole = name.partition(".")[0]
    return shares.get(name, shares.get(whole, 0.0) / sets[whole]) if shares else 1.0
