"""Accounts of a small bank: whole euros move between them, and none is made or lost."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from training.rl.worlds.world import World, already, conflict, found, function, functions, integer, text

OWNERS = ("Ana", "Ben", "Clara", "David", "Elif", "Farid", "Greta", "Hugo", "Li Na", "Wang Wei", "Zhao Min", "Chen Jie")
_ACCOUNT = text("Account number, such as A1042", 5, "^A[0-9]{4}$")


def _draw(draw: random.Random) -> dict[str, Any]:
    owners = draw.sample(OWNERS, draw.randint(3, 6))
    numbers = draw.sample(range(1000, 10000), len(owners))
    accounts = {
        f"A{number}": {"owner": owner, "balance": draw.randint(20, 900), "frozen": False}
        for number, owner in zip(numbers, owners, strict=True)
    }
    accounts[draw.choice(sorted(accounts))]["frozen"] = draw.random() < 0.5
    opening = {number: account["balance"] for number, account in accounts.items()}
    return {"accounts": accounts, "opening": opening, "transfers": {}}


@function(
    ("find_accounts", "accounts_of", "lookup_owner"),
    "Account numbers of a person",
    {"owner": text("Name of the person", 40)},
)
def _accounts(data: dict[str, Any], owner: str) -> dict[str, Any]:
    numbers = sorted(number for number, account in data["accounts"].items() if account["owner"] == owner)
    return {"owner": owner, "accounts": numbers}


@function(
    ("balance", "get_balance", "show_account"),
    "What an account holds, in euros, and whether it is frozen",
    {"account": _ACCOUNT},
)
def _balance(data: dict[str, Any], account: str) -> dict[str, Any]:
    holder = found(data["accounts"], account, "account")
    return {"account": account, "balance": holder["balance"], "frozen": holder["frozen"]}


@function(
    ("transfer", "send_money", "pay"),
    "Move euros to another account; the same reference is paid once",
    {
        "source": _ACCOUNT,
        "target": _ACCOUNT,
        "amount": integer(1, 10000, "Euros"),
        "reference": text("Chosen by the customer", 30),
    },
    writes=True,
)
def _transfer(data: dict[str, Any], source: str, target: str, amount: int, reference: str) -> dict[str, Any]:
    wanted = {"source": source, "target": target, "amount": amount}
    if reference in data["transfers"]:
        if data["transfers"][reference] != wanted:
            raise conflict(f"reference {reference} belongs to another transfer")
        return {"reference": reference, **wanted}  # the same transfer again: it is paid once
    giver, taker = found(data["accounts"], source, "account"), found(data["accounts"], target, "account")
    if source == target:
        raise conflict("both accounts are the same")
    if giver["frozen"] or taker["frozen"]:
        raise conflict("a frozen account takes part in no transfer")
    if giver["balance"] < amount:
        raise conflict(f"{source} holds only {giver['balance']}")
    giver["balance"] -= amount
    taker["balance"] += amount
    data["transfers"][reference] = wanted
    return {"reference": reference, **wanted}


@function(("transfers", "history", "list_transfers"), "Transfers from and to an account", {"account": _ACCOUNT})
def _transfers(data: dict[str, Any], account: str) -> dict[str, Any]:
    found(data["accounts"], account, "account")
    made = {key: one for key, one in data["transfers"].items() if account in (one["source"], one["target"])}
    return {"account": account, "transfers": [{"reference": key, **one} for key, one in sorted(made.items())]}


@function(
    ("freeze", "lock_account", "block"),
    "Freeze an account: no transfers until it is unfrozen",
    {"account": _ACCOUNT},
    writes=True,
)
def _freeze(data: dict[str, Any], account: str) -> dict[str, Any]:
    return _set_frozen(data, account, True)


@function(
    ("unfreeze", "unlock_account", "unblock"), "End the freezing of an account", {"account": _ACCOUNT}, writes=True
)
def _unfreeze(data: dict[str, Any], account: str) -> dict[str, Any]:
    return _set_frozen(data, account, False)


def _set_frozen(data: dict[str, Any], account: str, frozen: bool) -> dict[str, Any]:
    holder = found(data["accounts"], account, "account")
    if holder["frozen"] == frozen:
        raise already(f"{account} is {'frozen' if frozen else 'not frozen'}")
    holder["frozen"] = frozen
    return {"account": account, "frozen": frozen}


def _balances_follow(data: Mapping[str, Any]) -> bool:
    expected = dict(data["opening"])
    for made in data["transfers"].values():
        expected[made["source"]] -= made["amount"]
        expected[made["target"]] += made["amount"]
    return expected == {number: account["balance"] for number, account in data["accounts"].items()}


BANK = World(
    "bank",
    ("bank", "accounts", "banking"),
    functions(_accounts, _balance, _transfer, _transfers, _freeze, _unfreeze),
    _draw,
    {
        "no account is below zero": lambda data: all(one["balance"] >= 0 for one in data["accounts"].values()),
        "the sum of all accounts is what it was": lambda data: (
            sum(one["balance"] for one in data["accounts"].values()) == sum(data["opening"].values())
        ),
        "every balance follows from the transfers": _balances_follow,
    },
)
