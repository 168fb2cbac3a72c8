"""What the problems of `instructions` are about: facts, and the words that show a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Language = Literal["english", "chinese"]


@dataclass(frozen=True)
class Topic:
    """One topic in one language."""

    facts: tuple[str, ...]
    """Short sentences, of which gold replies are made."""
    about: tuple[str, ...]
    """Words that show a text to be about it, beside its name: those of four letters and more stand for what begins with
    them too, so `snow` for `snowman`."""
    example: str
    """A sentence that gives an example."""
    reason: str
    """A sentence that says why something is so."""


TOPICS: Mapping[Language, Mapping[str, Topic]] = {
    "english": {
        "tea": Topic(
            (
                "Tea grows on hills where mornings are cool.",
                "Leaves are picked by hand in spring.",
                "Green tea is heated soon after picking.",
                "Black tea is left to darken first.",
                "Water that boils too hard makes it bitter.",
            ),
            tuple(
                "tea teas leaf leaves green black bitter pick cup mug pot kettle water boil brew steep drink sip milk "
                "sugar lemon oolong assam matcha chai caffeine infus herb camellia".split()
            ),
            "For example, Assam is a black tea.",
            "It keeps people awake because it has caffeine.",
        ),
        "bees": Topic(
            (
                "Bees live together in a hive.",
                "A worker visits hundreds of flowers each day.",
                "Honey feeds the colony through winter.",
                "The queen lays every egg.",
                "Farmers need them for fruit.",
            ),
            tuple(
                "bee hive worker flower honey colony queen egg farmer fruit pollen pollinat nectar swarm sting drone "
                "comb wax insect wing buzz bumblebee blossom garden larva".split()
            ),
            "For example, almonds need their visits.",
            "Bees dance because others have to find the flowers.",
        ),
        "rivers": Topic(
            (
                "Rivers begin as springs or melting snow.",
                "They carry sand towards the sea.",
                "Cities were often built beside them.",
                "A dam stores their water for dry months.",
                "Fish swim upstream to breed.",
            ),
            tuple(
                "river spring melt sand sea dam water fish stream upstream downstream bank flow flood delta valley "
                "boat bridge mouth source current canyon rain lake ocean nile amazon danube rhine salmon".split()
            ),
            "For example, the Danube passes through ten countries.",
            "Valleys are deep because water cuts into the rock.",
        ),
        "bridges": Topic(
            (
                "A bridge joins two shores.",
                "Stone arches hold by their own weight.",
                "Steel cables carry longer spans.",
                "Engineers test them against wind.",
                "Some old ones still bear traffic.",
            ),
            tuple(
                "bridge shore stone arch weight steel cable span engineer wind traffic cross river beam load tower "
                "pillar suspension road rail build built collaps concrete".split()
            ),
            "For example, the Golden Gate hangs on cables.",
            "They need joints because steel grows in the sun.",
        ),
        "winter": Topic(
            (
                "Winter days are short and cold.",
                "Snow covers fields for weeks.",
                "Children build figures out of it.",
                "Many birds have flown south.",
                "People light fires at night.",
            ),
            tuple(
                "winter cold snow birds south fire ice icy freez froze frost skat ski skis skiing sled coat scarf "
                "glove season december january february warm blanket dark christmas hibernat days nights".split()
            ),
            "For example, sparrows stay and look for seeds.",
            "It is cold because the sun stands low.",
        ),
    },
    "chinese": {
        "茶": Topic(
            ("茶树长在凉爽的山坡上。", "春天人们用手采摘嫩叶。", "绿茶采下后很快加热。", "水太烫会让茶变苦。"),
            ("茶", "叶", "泡", "壶", "杯", "采摘", "喝", "苦", "清香"),
            "例如，龙井就是一种绿茶。",
            "因为茶里有咖啡因，所以喝了会精神。",
        ),
        "河流": Topic(
            ("河流从泉水或融雪开始。", "它把泥沙带向大海。", "许多城市建在河边。", "水坝为旱季储存水。"),
            ("河", "江", "溪", "水", "流", "泥沙", "海", "坝", "船", "鱼", "岸"),
            "例如，长江流过十一个省市。",
            "因为水一直在冲刷岩石，所以山谷很深。",
        ),
        "冬天": Topic(
            ("冬天白天短而寒冷。", "大雪覆盖田野好几个星期。", "孩子们堆起雪人。", "候鸟已经飞往南方。"),
            ("冬", "雪", "冷", "冰", "寒", "霜", "候鸟", "暖", "火炉", "冻", "北风"),
            "例如，麻雀会留下来找种子吃。",
            "因为太阳很低，所以天气寒冷。",
        ),
    },
}
ASKED: Mapping[Language, str] = {"english": "Write about {0}.", "chinese": "请写一写{0}。"}
