"""Every family of tasks, by name. A new family is a row in the file of its world."""

from __future__ import annotations

from collections.abc import Mapping

from training.rl.worlds.families.bank import BANK
from training.rl.worlds.families.calendar import CALENDAR
from training.rl.worlds.families.family import Family
from training.rl.worlds.families.files import FILES
from training.rl.worlds.families.shop import SHOP
from training.rl.worlds.families.tickets import TICKETS

FAMILIES: Mapping[str, Family] = {row.name: row for row in (*BANK, *CALENDAR, *SHOP, *FILES, *TICKETS)}
