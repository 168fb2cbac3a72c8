"""Every family of tasks, by name. A new family is a row in the file of its world."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.agentic.worlds.families.bank import BANK
from tasks.agentic.worlds.families.calendar import CALENDAR
from tasks.agentic.worlds.families.family import Family
from tasks.agentic.worlds.families.files import FILES
from tasks.agentic.worlds.families.shop import SHOP
from tasks.agentic.worlds.families.tickets import TICKETS

FAMILIES: Mapping[str, Family] = {row.name: row for row in (*BANK, *CALENDAR, *SHOP, *FILES, *TICKETS)}
