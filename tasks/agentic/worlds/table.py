"""Every world, by name. A new world is a file beside this one and a row here."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.agentic.worlds.bank import BANK
from tasks.agentic.worlds.calendar import CALENDAR
from tasks.agentic.worlds.files import FILES
from tasks.agentic.worlds.shop import SHOP
from tasks.agentic.worlds.tickets import TICKETS
from tasks.agentic.worlds.world import World

WORLDS: Mapping[str, World] = {world.name: world for world in (BANK, CALENDAR, SHOP, FILES, TICKETS)}
