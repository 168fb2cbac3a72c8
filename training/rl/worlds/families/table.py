"""What tasks are drawn from; of the hand-written worlds and their families, every one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from training.rl.worlds import bank, calendar, files, shop, tickets
from training.rl.worlds.families.bank import BANK
from training.rl.worlds.families.calendar import CALENDAR
from training.rl.worlds.families.family import Family
from training.rl.worlds.families.files import FILES
from training.rl.worlds.families.shop import SHOP
from training.rl.worlds.families.tickets import TICKETS
from training.rl.worlds.wording import Language
from training.rl.worlds.world import World

WORLDS: Mapping[str, World] = {
    world.name: world for world in (bank.BANK, calendar.CALENDAR, shop.SHOP, files.FILES, tickets.TICKETS)
}
PERSONAL: Mapping[Language, tuple[str, ...]] = {
    "english": ("", "You are a helpful assistant with tools.", "Use the tools. Ask where something is missing."),
    "chinese": ("", "你是会使用工具的助手。", "请使用工具；信息不全时先询问。"),
}
FAMILIES: Mapping[str, Family] = {row.name: row for row in (*BANK, *CALENDAR, *SHOP, *FILES, *TICKETS)}


@dataclass(frozen=True)
class Setting:
    """Worlds, what people ask for in them, and who is asked."""

    worlds: Mapping[str, World]
    families: Mapping[str, Family]
    languages: tuple[Language, ...] = ("english", "english", "chinese")
    """Drawn evenly."""
    prompts: Mapping[Language, tuple[str, ...]] = field(default_factory=lambda: PERSONAL)
    """System prompts; the empty one is none."""


HAND_WRITTEN = Setting(WORLDS, FAMILIES)
