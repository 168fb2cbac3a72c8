"""What people ask for with accounts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from training.rl.worlds.families.family import Data, Family, last, pair


def _reference(draw: random.Random) -> str:
    return f"{draw.choice(('rent', 'gift', 'lunch', 'trip', 'books', 'repair', 'tickets'))}-{draw.randint(1, 999)}"


def _open_accounts(data: Data, draw: random.Random) -> list[str]:
    numbers = [key for key, one in data["accounts"].items() if not one["frozen"] and one["balance"] > 0]
    return draw.sample(numbers, len(numbers))


def _draw_transfer(data: Data, draw: random.Random) -> dict[str, Any] | None:
    numbers = _open_accounts(data, draw)
    reference = _reference(draw)
    if len(numbers) < 2 or reference in data["transfers"]:
        return None
    amount = draw.randint(1, data["accounts"][numbers[0]]["balance"])
    return {"source": numbers[0], "target": numbers[1], "amount": amount, "reference": reference}


def _draw_pay_person(data: Data, draw: random.Random) -> dict[str, Any] | None:
    drawn = _draw_transfer(data, draw)
    return drawn and {
        "source": drawn["source"],
        "owner": data["accounts"][drawn["target"]]["owner"],
        "amount": drawn["amount"],
        "reference": drawn["reference"],
    }


def _account_of(data: Data, owner: str) -> str:
    return next(key for key, one in data["accounts"].items() if one["owner"] == owner)


def _draw_account(data: Data, draw: random.Random, frozen: bool = False) -> dict[str, Any] | None:
    numbers = sorted(key for key, one in data["accounts"].items() if one["frozen"] == frozen)
    return {"account": draw.choice(numbers)} if numbers else None


def _draw_two(data: Data, draw: random.Random) -> dict[str, Any] | None:
    one, other = draw.sample(sorted(data["accounts"]), 2)
    equal = data["accounts"][one]["balance"] == data["accounts"][other]["balance"]
    return None if equal else {"one": one, "other": other}


def _richer(results: list[Any]) -> Mapping[str, Any]:
    return {"richer": max(results, key=lambda result: result["balance"])["account"]}


def _draw_frozen_transfer(data: Data, draw: random.Random) -> dict[str, Any] | None:
    frozen = sorted(key for key, one in data["accounts"].items() if one["frozen"] and one["balance"] > 0)
    others = _open_accounts(data, draw)
    if not frozen or not others:
        return None
    source = draw.choice(frozen)
    amount = draw.randint(1, data["accounts"][source]["balance"])
    return {"source": source, "target": others[0], "amount": amount, "reference": _reference(draw)}


BANK = (
    Family(
        "bank.balance",
        "bank",
        _draw_account,
        lambda data, a: [("balance", a)],
        (
            "(tell|show) me (the balance of|what is on) account {account}",
            "(check|look up) how much (money|) is on {account}",
        ),
        ("(查一下|告诉我)账户{account}的余额", "看看{account}里有多少钱"),
        pair("Account {account} holds {balance} euros.", "账户{account}的余额是{balance}欧元。"),
        last("balance"),
    ),
    Family(
        "bank.transfer",
        "bank",
        _draw_transfer,
        lambda data, a: [("transfer", a)],
        (
            "(transfer|send|move) {amount} euros from {source} to {target} with the reference {reference}",
            "(pay|wire) {amount} euros to {target} from {source}, reference {reference}",
        ),
        (
            "从{source}向{target}(转|汇){amount}欧元，备注{reference}",
            "用{source}给{target}付{amount}欧元，备注{reference}",
        ),
        pair(
            "Done: {amount} euros went from {source} to {target} ({reference}).",
            "已从{source}向{target}转{amount}欧元（{reference}）。",
        ),
        withheld={
            "amount": pair(
                "(transfer|send) some money from {source} to {target}, reference {reference}",
                "从{source}向{target}(转|汇)一笔钱，备注{reference}",
            ),
            "reference": pair(
                "(transfer|send) {amount} euros from {source} to {target}", "从{source}向{target}(转|汇){amount}欧元"
            ),
        },
    ),
    Family(
        "bank.pay_person",
        "bank",
        _draw_pay_person,
        lambda data, a: [
            ("find_accounts", {"owner": a["owner"]}),
            (
                "transfer",
                {name: a[name] for name in ("source", "amount", "reference")}
                | {"target": _account_of(data, a["owner"])},
            ),
        ],
        (
            "(send|transfer) {owner} {amount} euros from my account {source}, reference {reference}",
            "(pay|give) {amount} euros to {owner} from {source} with the reference {reference}",
        ),
        (
            "从我的账户{source}给{owner}(转|汇){amount}欧元，备注{reference}",
            "用{source}付{amount}欧元给{owner}，备注{reference}",
        ),
        pair("{owner} got {amount} euros ({reference}).", "已付{amount}欧元给{owner}（{reference}）。"),
    ),
    Family(
        "bank.empty",
        "bank",
        lambda data, draw: (drawn := _draw_transfer(data, draw)) and {k: v for k, v in drawn.items() if k != "amount"},
        lambda data, a: [
            ("balance", {"account": a["source"]}),
            ("transfer", {**a, "amount": data["accounts"][a["source"]]["balance"]}),
        ],
        (
            "(move|transfer|send) everything on {source} to {target}, reference {reference}",
            "empty {source} into {target} (with the|under) reference {reference}",
        ),
        ("把{source}里的钱全部(转|汇)到{target}，备注{reference}", "把{source}的余额都给{target}，备注{reference}"),
        pair("All {amount} euros are on {target} now.", "{amount}欧元已全部转到{target}。"),
        last("amount"),
    ),
    Family(
        "bank.freeze",
        "bank",
        _draw_account,
        lambda data, a: [("freeze", a)],
        ("(freeze|lock|block) (my|the) account {account}", "make sure nobody can take money from {account}: freeze it"),
        ("(冻结|锁定)账户{account}", "把{account}冻结起来"),
        pair("Account {account} is frozen.", "账户{account}已冻结。"),
    ),
    Family(
        "bank.unfreeze_and_pay",
        "bank",
        _draw_frozen_transfer,
        lambda data, a: [("unfreeze", {"account": a["source"]}), ("transfer", a), ("freeze", {"account": a["source"]})],
        (
            "unfreeze {source}, (send|pay) {amount} euros to {target}, reference {reference}, and freeze it again",
            "(open|unlock) account {source}, pay {amount} euros to {target}, reference {reference}, and freeze it",
        ),
        (
            "先解冻{source}，向{target}(转|汇){amount}欧元，备注{reference}，然后再冻结",
            "解冻{source}，付{amount}欧元给{target}，备注{reference}，最后重新冻结",
        ),
        pair(
            "{target} got {amount} euros, and {source} is frozen again.",
            "{target}已收到{amount}欧元，{source}已重新冻结。",
        ),
    ),
    Family(
        "bank.richer",
        "bank",
        _draw_two,
        lambda data, a: [("balance", {"account": a["one"]}), ("balance", {"account": a["other"]})],
        (
            "(tell|show) me which holds more, {one} or {other}",
            "(compare|check) {one} and {other} and (name|tell me) the fuller account",
        ),
        ("看看{one}和{other}哪个(钱多|余额多)", "比较{one}和{other}的余额，告诉我哪个(多|更多)"),
        pair("{richer} holds more.", "{richer}的余额更多。"),
        _richer,
    ),
)
