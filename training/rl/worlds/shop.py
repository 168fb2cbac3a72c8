"""A shop with a cart, orders and store credit: goods and money are only moved."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from training.rl.worlds.world import World, already, conflict, found, function, functions, integer, text

NAMES = (
    "desk lamp", "green tea", "notebook", "water bottle", "wool scarf", "chess set", "umbrella", "coffee mug",
    "phone case", "garden gloves", "wall clock", "jigsaw puzzle", "backpack", "candle", "frying pan", "toy train",
)  # fmt: skip
_PRODUCT = text("Number of the product, such as P204", 4, "^P[0-9]{3}$")
_ORDER = text("Number of the order, such as O31", 8, "^O[0-9]{1,6}$")


def _draw(draw: random.Random) -> dict[str, Any]:
    names = draw.sample(NAMES, draw.randint(4, 7))
    numbers = [f"P{number}" for number in draw.sample(range(100, 1000), len(names))]
    products = {
        number: {"name": name, "price": draw.randint(3, 40), "stock": draw.randint(4, 15)}
        for number, name in zip(numbers, names, strict=True)
    }
    data = {
        "products": products,
        "supply": {number: product["stock"] for number, product in products.items()},
        "cart": {draw.choice(numbers): draw.randint(1, 3)},
        "orders": {},
        "credit": 800,
        "deposit": 800,
        "next": draw.randint(10, 90),
    }
    for number in draw.sample(numbers, 2):
        _place(data, {number: draw.randint(1, 2)})
    return data


def _place(data: dict[str, Any], items: dict[str, int]) -> str:
    total = sum(data["products"][number]["price"] * count for number, count in items.items())
    if total > data["credit"]:
        raise conflict(f"that costs {total} and the credit is {data['credit']}")
    for number, count in items.items():
        if count > data["products"][number]["stock"]:
            raise conflict(f"only {data['products'][number]['stock']} of {number} are in stock")
    for number, count in items.items():
        data["products"][number]["stock"] -= count
    data["credit"] -= total
    order = f"O{data['next']}"
    data["orders"][order] = {"items": items, "total": total, "status": "placed"}
    data["next"] += 1
    return order


@function(("search", "find_product", "lookup"), "Find products by a part of their name", {"name": text("Name")})
def _search(data: dict[str, Any], name: str) -> dict[str, Any]:
    hits = [(key, one) for key, one in sorted(data["products"].items()) if name.lower() in one["name"]]
    return {"products": [{"product": key, **one} for key, one in hits]}


@function(("cart", "show_cart", "view_basket"), "What lies in the cart, its price, and the credit", {})
def _cart(data: dict[str, Any]) -> dict[str, Any]:
    return _in_cart(data)


def _in_cart(data: Mapping[str, Any]) -> dict[str, Any]:
    total = sum(data["products"][number]["price"] * count for number, count in data["cart"].items())
    return {"items": data["cart"], "total": total, "credit": data["credit"]}


@function(
    ("set_quantity", "put_in_cart", "update_cart"),
    "Set how many of a product lie in the cart",
    {"product": _PRODUCT, "quantity": integer(1, 50, "Pieces")},
    writes=True,
)
def _set_quantity(data: dict[str, Any], product: str, quantity: int) -> dict[str, Any]:
    found(data["products"], product, "product")
    data["cart"][product] = quantity
    return _in_cart(data)


@function(("remove", "remove_item", "take_out"), "Take a product out of the cart", {"product": _PRODUCT}, writes=True)
def _remove(data: dict[str, Any], product: str) -> dict[str, Any]:
    found(data["cart"], product, "item of the cart called")
    del data["cart"][product]
    return _in_cart(data)


@function(("clear", "empty_cart", "clear_basket"), "Empty the cart", {}, writes=True)
def _clear(data: dict[str, Any]) -> dict[str, Any]:
    data["cart"] = {}
    return _in_cart(data)


@function(("checkout", "place_order", "buy"), "Order what lies in the cart and pay it from the credit", {}, writes=True)
def _checkout(data: dict[str, Any]) -> dict[str, Any]:
    if not data["cart"]:
        # Whoever got no answer to a checkout learns here what became of it.
        last = max(data["orders"], key=lambda order: int(order[1:]))
        raise already(f"the cart is empty; the last order is {last} of {data['orders'][last]['total']} euros")
    order = _place(data, data["cart"])
    data["cart"] = {}
    return {"order": order, **data["orders"][order]}


@function(("order", "show_order", "order_status"), "One order", {"order": _ORDER})
def _order(data: dict[str, Any], order: str) -> dict[str, Any]:
    return {"order": order, **found(data["orders"], order, "order")}


@function(
    ("cancel", "cancel_order", "refund"),
    "Cancel an order; its price goes back to the credit",
    {"order": _ORDER},
    writes=True,
)
def _cancel(data: dict[str, Any], order: str) -> dict[str, Any]:
    entry = found(data["orders"], order, "order")
    if entry["status"] == "cancelled":
        raise already(f"{order} is cancelled; {entry['total']} euros are back")
    for number, count in entry["items"].items():
        data["products"][number]["stock"] += count
    data["credit"] += entry["total"]
    entry["status"] = "cancelled"
    return {"order": order, **entry}


def _standing(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [order for order in data["orders"].values() if order["status"] == "placed"]


SHOP = World(
    "shop",
    ("shop", "store", "market"),
    functions(_search, _cart, _set_quantity, _remove, _clear, _checkout, _order, _cancel),
    _draw,
    {
        "credit and standing orders add up to the deposit": lambda data: (
            data["credit"] + sum(order["total"] for order in _standing(data)) == data["deposit"]
        ),
        "stock and standing orders add up to the supply": lambda data: all(
            product["stock"] + sum(order["items"].get(number, 0) for order in _standing(data)) == data["supply"][number]
            for number, product in data["products"].items()
        ),
        "nothing is below zero": lambda data: (
            data["credit"] >= 0 and all(product["stock"] >= 0 for product in data["products"].values())
        ),
        "the cart holds known products": lambda data: data["cart"].keys() <= data["products"].keys(),
    },
)
