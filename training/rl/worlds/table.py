"""Every world, by name. A new world is a file beside this one and a row here."""

from __future__ import annotations

from collections.abc import Mapping

from training.rl.worlds.bank import BANK
from training.rl.worlds.calendar import CALENDAR
from training.rl.worlds.files import FILES
from training.rl.worlds.shop import SHOP
from training.rl.worlds.tickets import TICKETS
from training.rl.worlds.world import World

WORLDS: Mapping[str, World] = {world.name: world for world in (BANK, CALENDAR, SHOP, FILES, TICKETS)}
