"""What people ask for with a shop."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from training.rl.worlds.families.family import Call, Data, Family, last, pair


def _priced(data: Data, draw: random.Random) -> dict[str, Any]:
    return {"name": draw.choice(sorted(one["name"] for one in data["products"].values()))}


def _number_of(data: Data, name: str) -> str:
    return next(key for key, one in data["products"].items() if one["name"] == name)


def _draw_buy(data: Data, draw: random.Random) -> dict[str, Any] | None:
    drawn = _priced(data, draw) | {"quantity": draw.randint(1, 4)}
    wanted = data["cart"] | {_number_of(data, drawn["name"]): drawn["quantity"]}
    return drawn if _affordable(data, wanted) else None


def _affordable(data: Data, items: Mapping[str, int]) -> bool:
    total = sum(data["products"][number]["price"] * count for number, count in items.items())
    return total <= data["credit"] and all(data["products"][key]["stock"] >= count for key, count in items.items())


def _draw_cart(data: Data, draw: random.Random) -> dict[str, Any] | None:
    product, quantity = draw.choice(sorted(data["products"])), draw.randint(1, 9)
    return None if data["cart"].get(product) == quantity else {"product": product, "quantity": quantity}


def _draw_order(data: Data, draw: random.Random) -> dict[str, Any] | None:
    placed = sorted(key for key, one in data["orders"].items() if one["status"] == "placed")
    return {"order": draw.choice(placed)} if placed else None


def _draw_again(data: Data, draw: random.Random) -> dict[str, Any] | None:
    drawn = _draw_order(data, draw)
    return drawn if drawn and _affordable(data, data["orders"][drawn["order"]]["items"]) else None


def _plan_again(data: Data, a: dict[str, Any]) -> list[Call]:
    items = data["orders"][a["order"]]["items"]
    put: list[Call] = [("set_quantity", {"product": key, "quantity": count}) for key, count in sorted(items.items())]
    return [("order", a), ("clear", {}), *put, ("checkout", {})]


def _plan_buy(data: Data, a: dict[str, Any]) -> list[Call]:
    put = {"product": _number_of(data, a["name"]), "quantity": a["quantity"]}
    return [("search", {"name": a["name"]}), ("set_quantity", put), ("checkout", {})]


SHOP = (
    Family(
        "shop.price",
        "shop",
        _priced,
        lambda data, a: [("search", a)],
        ("(tell|show) me the price of the {name} (in the shop|)", "(find out|check) what the {name} costs"),
        ("(查一下|告诉我){name}的价格", "看看{name}多少钱"),
        pair("The {name} costs {price} euros.", "{name}的价格是{price}欧元。"),
        lambda results: {"price": results[-1]["products"][0]["price"]},
    ),
    Family(
        "shop.cart",
        "shop",
        _draw_cart,
        lambda data, a: [("set_quantity", a)],
        ("(put|place) {quantity} of {product} in (my|the) cart", "set {product} in (my|the) cart to {quantity} pieces"),
        ("把{quantity}件{product}(放进|加入)购物车", "把购物车里的{product}(改成|设为){quantity}件"),
        pair("{quantity} of {product} are in the cart.", "购物车里有{quantity}件{product}。"),
        withheld={"quantity": pair("put (some|a few) of {product} in my cart", "把几件{product}(放进|加入)购物车")},
    ),
    Family(
        "shop.remove",
        "shop",
        lambda data, draw: {"product": draw.choice(sorted(data["cart"]))} if data["cart"] else None,
        lambda data, a: [("remove", a)],
        ("(take|get) {product} out of (my|the) cart", "(remove|delete) {product} from the cart"),
        ("把{product}从购物车里(拿掉|删除)", "购物车里(不要|去掉){product}"),
        pair("{product} is out of the cart.", "{product}已从购物车中移除。"),
    ),
    Family(
        "shop.buy",
        "shop",
        _draw_buy,
        _plan_buy,
        (
            "(put|place) {quantity} of the {name} in my cart and (order|buy) all that is in it",
            "set the {name} to {quantity} pieces in my cart, then (check out|place the order)",
        ),
        ("把{quantity}件{name}放进购物车，然后(下单|结账)", "购物车里加{quantity}件{name}，再把购物车(下单|结账)"),
        pair("That is order {order}, {total} euros in all.", "订单{order}已下，共{total}欧元。"),
        last("order", "total"),
    ),
    Family(
        "shop.cancel",
        "shop",
        _draw_order,
        lambda data, a: [("cancel", a)],
        ("cancel (my|the) order {order}", "(undo|call off) order {order} and give me my money back"),
        ("取消(我的|)订单{order}", "把订单{order}(退掉|取消)，钱退给我"),
        pair("Order {order} is cancelled; {total} euros are back.", "订单{order}已取消，退回{total}欧元。"),
        last("total"),
    ),
    Family(
        "shop.again",
        "shop",
        _draw_again,
        _plan_again,
        (
            "(empty|clear) my cart and order the (same|same things) as in {order} once more",
            "repeat order {order}; what is in my cart now (can go|may be thrown out) first",
        ),
        ("清空购物车，(照|按){order}再买一次", "购物车(清空|先清掉)，然后重复订单{order}"),
        pair("The new order is {fresh}.", "新订单是{fresh}。"),
        lambda results: {"fresh": results[-1]["order"]},
    ),
)
