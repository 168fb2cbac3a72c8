"""How often each group of documents is read: shares by water-filling, under caps on epochs and a budget.

A group is what no weight tells apart: one domain, source, language, licence and quality bucket. Legend: `tokens` are
those a group has, `epochs` how often it is read; epochs times tokens is what training reads of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.corpus.licence import allowed
from tasks.corpus.mix.config import MixConfig

REWRITE = "rewrite"
"""The bucket of rewrites: they are checked against their source, not scored."""


class MixError(ValueError):
    """A mix that cannot be had as asked."""


@dataclass(frozen=True, order=True)
class Group:
    """Documents that are read equally often."""

    domain: str
    source: str
    language: str
    licence: str
    bucket: str
    documents: int
    bytes: int
    tokens: float
    """Estimated."""


@dataclass(frozen=True)
class Ration:
    """What the mix makes of one group."""

    group: Group
    asked: float
    """Its share of the training tokens had there been no cap on epochs."""
    epochs: float
    tokens: float
    """Training tokens: epochs times the group's."""
    share: float
    reason: str


def fill(total: float, asks: Sequence[float], rooms: Sequence[float]) -> list[float]:
    """`total` poured out in proportion to `asks`, none above its `rooms`; what one cannot take the others get, in
    proportion. Raises ValueError where all rooms together are too small."""
    filled = [0.0] * len(asks)
    left = total
    cups = list(zip(asks, rooms, strict=True))
    order = [
        place for _, place in sorted((_fullness(room, ask), place) for place, (ask, room) in enumerate(cups) if ask > 0)
    ]
    # Summed from the smallest share of the rest, and never by subtraction, which would lose small asks beside large.
    weights = list(itertools.accumulate(asks[place] for place in reversed(order)))[::-1]
    for place, weight in zip(order, weights, strict=True):
        filled[place] = min(rooms[place], left * (asks[place] / weight))
        left = max(left - filled[place], 0.0)
    if left > 1e-9 * max(total, 1.0):
        raise ValueError(f"{left:g} of {total:g} have no room")
    return filled


def _fullness(room: float, ask: float) -> tuple[float, float]:
    """What decides who is full first; where the ratio is too large for a float, its logarithm does."""
    ratio = room / ask
    return ratio, math.log(room) - math.log(ask) if ratio == math.inf else 0.0


def solve(groups: Sequence[Group], config: MixConfig) -> list[Ration]:
    """The ration of every group, in the order of `groups`. Their shares sum to 1. Raises MixError where nothing may
    enter, or where the budget is more than all allowed epochs give."""
    barred = [_barred(group, config) for group in groups]
    weights = [0.0 if why else _weight(group, config) for group, why in zip(groups, barred, strict=True)]
    caps = [config.source_epochs.get(group.source, config.epochs) for group in groups]
    rooms = [cap * group.tokens if weight else 0.0 for cap, group, weight in zip(caps, groups, weights, strict=True)]
    plain = [min(cap, weight) for cap, weight in zip(caps, weights, strict=True)]
    asks = [weight * group.tokens for weight, group in zip(weights, groups, strict=True)]
    most = math.fsum(rooms)
    if not most:
        raise MixError(
            "no text may enter the mix: every domain, source, bucket or licence of the corpus is left out; see "
            f"`mix.licences` ({', '.join(config.licences)}) and the weights of 0"
        )
    total = config.tokens or math.fsum(times * group.tokens for times, group in zip(plain, groups, strict=True))
    if total > most * (1 + 1e-9):
        raise MixError(
            f"`mix.tokens` asks for {total:,.0f} tokens and the text that may enter gives at most {most:,.0f}, read as "
            "often as `mix.epochs` and `mix.source_epochs` allow: lower it, raise those, or add sources"
        )
    wanted = _wanted(groups, asks, config)
    if config.domains:
        taken = _by_domain(total, groups, asks, rooms, wanted)
    elif config.tokens:
        taken = fill(min(total, most), asks, rooms)
    else:
        taken = [times * group.tokens for times, group in zip(plain, groups, strict=True)]
    exact = [
        part / group.tokens if group.tokens else times for part, group, times in zip(taken, groups, plain, strict=True)
    ]
    # Rounded, so that an epoch is not 0.9999999999 of one; what follows counts with the rounded number. Where weights
    # are so small that nothing would be left, their proportions are.
    epochs = [round(times, 9) if group.tokens else times for times, group in zip(exact, groups, strict=True)]
    if not any(times * group.tokens for times, group in zip(epochs, groups, strict=True)):
        epochs = exact
    read = [times * group.tokens for times, group in zip(epochs, groups, strict=True)]
    whole = math.fsum(read)
    shares = [part / whole for part in read]
    reached = _sums(groups, shares)
    # Where nothing of a domain may enter, what was asked for it still shows.
    by_domain, held = _sums(groups, asks), _sums(groups, [group.tokens for group in groups])
    asked = [
        wanted[group.domain]
        * (ask / by_domain[group.domain] if by_domain[group.domain] else group.tokens / (held[group.domain] or 1.0))
        for ask, group in zip(asks, groups, strict=True)
    ]
    rations = [
        Ration(
            group,
            asked[place],
            epochs[place],
            read[place],
            shares[place],
            barred[place] or _reason(group, epochs[place], caps[place], wanted, reached, config),
        )
        for place, group in enumerate(groups)
    ]
    _conserved(rations, total)
    return rations


def _wanted(groups: Sequence[Group], asks: Sequence[float], config: MixConfig) -> dict[str, float]:
    """The share that is asked for each domain."""
    by_domain = _sums(groups, asks)
    if not config.domains:
        whole = math.fsum(by_domain.values())
        return {domain: ask / whole for domain, ask in by_domain.items()}
    whole = math.fsum(config.domains.get(domain, 0.0) for domain in by_domain)
    if not whole:
        raise MixError("`mix.domains` gives a share only to domains without any text: " + ", ".join(config.domains))
    return {domain: config.domains.get(domain, 0.0) / whole for domain in by_domain}


def _by_domain(
    total: float, groups: Sequence[Group], asks: Sequence[float], rooms: Sequence[float], wanted: dict[str, float]
) -> list[float]:
    """Tokens of every group: poured into the domains first, then within each."""
    by_room = _sums(groups, rooms)
    domains = [domain for domain in by_room if wanted[domain] > 0 and by_room[domain] > 0]
    most = math.fsum(by_room[domain] for domain in domains)
    if not domains:
        raise MixError(
            "no text may enter the mix: all sources, buckets or licences of the domains that `mix.domains` names are "
            "left out"
        )
    if total > most * (1 + 1e-9):
        raise MixError(
            f"the mix asks for {total:,.0f} tokens and the domains in `mix.domains` give at most {most:,.0f} within "
            "their epochs: lower `mix.tokens`, raise `mix.epochs`, or name more domains"
        )
    poured = fill(min(total, most), [wanted[domain] for domain in domains], [by_room[domain] for domain in domains])
    taken = [0.0] * len(groups)
    inside: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        inside.setdefault(group.domain, []).append(place)
    for domain, part in zip(domains, poured, strict=True):
        places = inside[domain]
        parts = fill(min(part, by_room[domain]), [asks[place] for place in places], [rooms[place] for place in places])
        for place, tokens in zip(places, parts, strict=True):
            taken[place] = tokens
    return taken


def _sums(groups: Sequence[Group], values: Sequence[float]) -> dict[str, float]:
    """Values summed by domain."""
    found: dict[str, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        found.setdefault(group.domain, []).append(value)
    return {domain: math.fsum(some) for domain, some in sorted(found.items())}


def _weight(group: Group, config: MixConfig) -> float:
    bucket = config.rewrites if group.bucket == REWRITE else config.buckets.get(group.bucket, 1.0)
    return config.sources.get(group.source, 1.0) * bucket


def _barred(group: Group, config: MixConfig) -> str:
    """Why nothing of a group may enter, or nothing."""
    if not allowed(group.licence, config.licences):
        return f"Left out: `mix.licences` does not allow {group.licence}."
    if config.domains and not config.domains.get(group.domain):
        return f"Left out: `mix.domains` gives {group.domain} no share."
    if not config.sources.get(group.source, 1.0):
        return f"Left out: `mix.sources` gives {group.source} the weight 0."
    if group.bucket == REWRITE and not config.rewrites:
        return "Left out: `mix.rewrites` is 0."
    if not config.buckets.get(group.bucket, 1.0):
        return f"Left out: `mix.buckets` gives '{group.bucket}' the weight 0."
    return ""


def _reason(
    group: Group,
    epochs: float,
    cap: float,
    wanted: dict[str, float],
    reached: dict[str, float],
    config: MixConfig,
) -> str:
    """Why a group is read as often as it is, in one sentence."""
    why = []
    if (weight := config.sources.get(group.source, 1.0)) != 1:
        why.append(f"the source weighs {weight:g}")
    if group.bucket == REWRITE:
        if config.rewrites != 1:
            why.append(f"rewrites weigh {config.rewrites:g}")
    elif (weight := config.buckets.get(group.bucket, 1.0)) != 1:
        why.append(f"quality '{group.bucket}' weighs {weight:g}")
    if config.domains:
        asked, got = wanted[group.domain], reached[group.domain]
        if got < asked - 5e-4:
            why.append(
                f"{group.domain} is asked for {asked:.1%} and reaches {got:.1%}, all it can within its epochs: the "
                "rest goes to the other domains in proportion"
            )
        elif got > asked + 5e-4:
            why.append(f"{group.domain} is asked for {asked:.1%} and takes {got:.1%}, since others cannot fill theirs")
        else:
            why.append(f"{group.domain} is asked for {asked:.1%} of the tokens")
    if config.tokens:
        why.append(f"the budget is {config.tokens:,} tokens")
    if epochs >= cap * (1 - 1e-9) and epochs != 1:
        why.append(f"{cap:g} epochs are the most that is allowed")
    times = "Read once" if epochs == 1 else f"Read {epochs:.3g} times"
    return f"{times}: {'; '.join(why) or 'nothing asks for more or less of it'}."


def _conserved(rations: Sequence[Ration], total: float) -> None:
    """Shares sum to 1, and what is read is what was to be read."""
    shares = math.fsum(ration.share for ration in rations)
    read = math.fsum(ration.tokens for ration in rations)
    # an epoch is rounded to 1e-9, which is that part of a group's tokens
    slack = 1e-6 * total + 1e-9 * math.fsum(ration.group.tokens for ration in rations)
    if abs(shares - 1) > 1e-9 or abs(read - total) > slack:
        raise MixError(f"the mix does not add up: shares of {shares!r}, {read!r} tokens of {total!r}; report this")
