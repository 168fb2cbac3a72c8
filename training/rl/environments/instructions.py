"""Instructions that code can check: rows of `CONSTRAINTS`, and a layer against replies which only seem to comply.

A problem is made from its gold reply: a short text is drawn, and constraints are taken that it meets. `answer` is
{"constraints": [[name, value], ...], "said": what the prompt says of them, "gold": the text}.
"""

from __future__ import annotations

import json
import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from model.chat import Reply
from model.dialogue import strict_json
from training.draw import problem_id
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict

Language = Literal["english", "chinese"]
WORD = re.compile(r"[\u4e00-\u9fff]|[^\W\d_\u4e00-\u9fff](?:[^\W\d_\u4e00-\u9fff]|['’-])*|[0-9]+(?:[.,:][0-9]+)*")
SENTENCE = re.compile(
    r"(?:[^.!?。！？\n]|\.(?=[A-Za-z0-9])"  # 3.5 ends none, nor do `Dr.`, `e.g. two` and `p.m. and`
    r"|(?:(?<=\bMr)|(?<=\bMrs)|(?<=\bMs)|(?<=\bDr))\.|(?:(?<=\.[A-Za-z])|(?<=\betc))\.(?=[ \t]+[a-z]))+[.!?。！？]?"
)
CLAIMS = re.compile(
    r"\bas (?:you )?(?:requested|asked|instructed)|\bI(?: have|['’]ve)? (?:followed|complied|kept to|met all|obeyed)"
    r"|\bthis (?:reply|response|answer|text) (?:contains|has|is|meets|follows|does|uses|satisfies)"
    r"|\bword count\b|\(\d+ words?\)|constraints? (?:is|are|were)? ?(?:met|satisfied|followed)"
    r"|(?:按照|根据|符合|遵守)(?:了|您|你|用户|题目|提示|上述|以上|所有|全部|这些|给定|提出|的)*(?:要求|指示|约束)"
    r"|本(?:回答|回复)|(?<!日)本文(?![化学明])|字数[:：]",
    re.IGNORECASE,
)
"""What a reply says of itself where it wants to be taken for one that complies."""


@dataclass(frozen=True)
class Constraint:
    """One kind of constraint."""

    says: Mapping[Language, str]
    """How it is asked for."""
    holds: Callable[[str, Any], bool]
    drawn: Callable[[str, random.Random], Any]
    """(a text, stream) -> a value with which the text meets it; None where there is none."""
    broken: Callable[[str, Any], str]
    """(a text that meets it, value) -> one that does not."""


def words(text: str) -> list[str]:
    return [word.casefold() for word in WORD.findall(unicodedata.normalize("NFC", text))]


def sentences(text: str) -> list[str]:
    return [one.strip() for one in SENTENCE.findall(text) if WORD.search(one)]


def _stands(word: str, text: str) -> bool:
    """Whether a text has a word or a phrase: `very` is none of `every`, and Chinese has no space around its words."""
    around = r"[^\W\u4e00-\u9fff]" if word.isascii() else "(?!)"
    return re.search(rf"(?<!{around}){re.escape(word)}(?!{around})", text, re.IGNORECASE) is not None


def _bullets(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("- ") and WORD.search(line)]


def _record(text: str) -> dict[str, Any] | None:
    try:
        found = strict_json(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _filled(text: str, keys: list[str]) -> bool:
    record = _record(text)
    if record is None or sorted(record) != keys:
        return False
    return all(value not in (None, [], {}) and str(value).strip() for value in record.values())


def _keys(text: str, draw: random.Random) -> list[str] | None:
    record = _record(text)
    return None if record is None else sorted(record)


def _rare(text: str, draw: random.Random) -> str | None:
    found = sorted(word for word, count in Counter(words(text)).items() if count == 1 and len(word) > 4)
    return draw.choice(found) if found and _record(text) is None else None


def _absent(text: str, draw: random.Random) -> str | None:
    return draw.choice([word for word in ("very", "really", "thing", "the best") if word not in text.casefold()])


def _language(text: str) -> str | None:
    """That of most of its words, as far as letters tell: a Chinese sentence may name an English term."""
    found = [word for word in words(text) if not word.isdigit()]
    if sum("\u4e00" <= word <= "\u9fff" for word in found) > len(found) / 2:
        return "Chinese"
    return "English" if sum(map(str.isascii, found)) > len(found) / 2 else None


CONSTRAINTS: Mapping[str, Constraint] = {
    "at_least": Constraint(
        {"english": "Use at least {0} words.", "chinese": "至少写{0}个字。"},
        lambda text, count: len(words(text)) >= count,
        lambda text, draw: max(1, len(words(text)) - draw.randint(0, 3)) if _record(text) is None else None,
        lambda text, count: " ".join(WORD.findall(text)[: max(0, count - 1)]),
    ),
    "at_most": Constraint(
        {"english": "Use at most {0} words.", "chinese": "最多写{0}个字。"},
        lambda text, count: 0 < len(words(text)) <= count,
        lambda text, draw: len(words(text)) + draw.randint(0, 5),
        lambda text, count: text + "".join(f" {number}" for number in range(count)),
    ),
    "keyword": Constraint(
        {"english": 'Use the word "{0}".', "chinese": "使用“{0}”这个词。"},
        lambda text, word: _stands(word, text),
        _rare,
        lambda text, word: re.sub(re.escape(word), "other", text, flags=re.IGNORECASE),
    ),
    "avoid": Constraint(
        {"english": 'Do not write "{0}".', "chinese": "不要写“{0}”。"},
        lambda text, word: bool(words(text)) and not _stands(word, " ".join(text.split())),
        _absent,
        lambda text, word: f"{text} {word}",
    ),
    "sentences": Constraint(
        {"english": "Write exactly {0} sentences.", "chinese": "正好写{0}句话。"},
        lambda text, count: len(sentences(text)) == count,
        lambda text, draw: len(sentences(text)) if not _bullets(text) and _record(text) is None else None,
        lambda text, count: text + " One more.",
    ),
    "bullets": Constraint(
        {
            "english": 'Give exactly {0} lines, each of which begins with "- ".',
            "chinese": "正好写{0}行，每行以“- ”开头。",
        },
        lambda text, count: len(_bullets(text)) == count == len([line for line in text.splitlines() if line.strip()]),
        lambda text, draw: len(_bullets(text)) or None,
        lambda text, count: text + "\n- one more",
    ),
    "json": Constraint(
        {"english": "Reply with a JSON object with the keys {0} alone.", "chinese": "只用一个JSON对象回答，键为{0}。"},
        _filled,
        _keys,
        lambda text, keys: text[:-1],
    ),
    "lowercase": Constraint(
        {"english": "Use no capital letters.", "chinese": "不要使用大写字母。"},
        lambda text, _: bool(words(text)) and text == text.lower(),
        lambda text, draw: True if text == text.lower() and _language(text) == "English" else None,
        lambda text, _: text.title(),
    ),
    "no_commas": Constraint(
        {"english": "Use no commas.", "chinese": "不要使用逗号。"},
        lambda text, _: bool(words(text)) and not set(",，、") & set(text),
        lambda text, draw: True if not set(",，、") & set(text) else None,
        lambda text, _: text + ", and so on",
    ),
    "language": Constraint(
        {"english": "Answer in {0}.", "chinese": "请用{0}回答。"},
        lambda text, name: _language(text) == name,
        lambda text, draw: None if _record(text) is not None else _language(text),
        lambda text, name: "It is another language." if name == "Chinese" else "这是另一种语言。",
    ),
    "ends": Constraint(
        {"english": 'End with "{0}".', "chinese": "以“{0}”结尾。"},
        lambda text, end: len(words(text)) > len(words(end)) and text.rstrip().endswith(end),
        lambda text, draw: text[-8:] if len(text) > 24 and "\n" not in text[-8:] and _record(text) is None else None,
        lambda text, end: text + " And that is all.",
    ),
}


def hack(text: str, said: str) -> str | None:
    """How a reply only seems to comply; None where nothing shows it."""
    if found := CLAIMS.search(text):
        return f"it speaks of itself: {found[0]!r}"
    flat = " ".join(words(text))
    for rule in sentences(said):
        rule_words = words(rule)
        if len(rule_words) >= 3 and " ".join(rule_words) in flat:
            return "it repeats what it was told"
    counts = Counter(words(text))
    total = sum(counts.values())
    # of a long text, a Chinese one above all, every word has been there before (Heaps' law): 2,000 characters have 320
    fewest = 0.3 * min(total, 10 * math.sqrt(total))
    if total >= 12 and (max(counts.values()) > 0.4 * total or len(counts) < fewest):
        return "it fills its length with the same words"
    longest = Counter(one for one in sentences(text) if len(words(one)) >= 3)
    if longest and max(longest.values()) >= 3:
        return "it says the same sentence again and again"
    return None


class Instructions(Environment):
    """One reply, which must meet every constraint and no check of the layer against hacks."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        if reply.calls:
            return verdict(False, "a call where a text was asked for")
        for name, value in problem.answer["constraints"]:
            if not CONSTRAINTS[name].holds(reply.content, value):
                return verdict(False, f"breaks {name}")
        found = hack(reply.content, problem.answer["said"])
        return verdict(found is None, f"hack: {found}")

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        answer = problem.answer
        texts = [CONSTRAINTS[name].broken(answer["gold"], value) for name, value in answer["constraints"]]
        texts += [answer["said"], "As requested, I followed every rule.", f"{answer['gold']} As you asked."]
        return [[Reply(text)] for text in texts]


TOPICS: Mapping[Language, Mapping[str, tuple[str, ...]]] = {
    "english": {
        "tea": (
            "Tea grows on hills where mornings are cool.",
            "Leaves are picked by hand in spring.",
            "Green tea is heated soon after picking.",
            "Black tea is left to darken first.",
            "Water that boils too hard makes it bitter.",
        ),
        "bees": (
            "Bees live together in a hive.",
            "A worker visits hundreds of flowers each day.",
            "Honey feeds the colony through winter.",
            "The queen lays every egg.",
            "Farmers need them for fruit.",
        ),
        "rivers": (
            "Rivers begin as springs or melting snow.",
            "They carry sand towards the sea.",
            "Cities were often built beside them.",
            "A dam stores their water for dry months.",
            "Fish swim upstream to breed.",
        ),
        "bridges": (
            "A bridge joins two shores.",
            "Stone arches hold by their own weight.",
            "Steel cables carry longer spans.",
            "Engineers test them against wind.",
            "Some old ones still bear traffic.",
        ),
        "winter": (
            "Winter days are short and cold.",
            "Snow covers fields for weeks.",
            "Children build figures out of it.",
            "Many birds have flown south.",
            "People light fires at night.",
        ),
    },
    "chinese": {
        "茶": ("茶树长在凉爽的山坡上。", "春天人们用手采摘嫩叶。", "绿茶采下后很快加热。", "水太烫会让茶变苦。"),
        "河流": ("河流从泉水或融雪开始。", "它把泥沙带向大海。", "许多城市建在河边。", "水坝为旱季储存水。"),
        "冬天": ("冬天白天短而寒冷。", "大雪覆盖田野好几个星期。", "孩子们堆起雪人。", "候鸟已经飞往南方。"),
    },
}
ASKED: Mapping[Language, str] = {"english": "Write about {0}.", "chinese": "请写一写{0}。"}


def problems(count: int, seed: str) -> list[Problem]:
    """`count` problems with one to three constraints each."""
    draw = random.Random(f"instructions/{seed}")
    found: list[Problem] = []
    while len(found) < count:
        language: Language = draw.choice(("english", "english", "chinese"))
        topic = draw.choice(sorted(TOPICS[language]))
        chosen = draw.sample(TOPICS[language][topic], draw.randint(2, 4))
        shape = draw.choice(("prose", "prose", "bullets", "json", "lower"))
        gold = ("" if language == "chinese" else " ").join(chosen)
        if shape == "bullets":
            gold = "\n".join(f"- {one}" for one in chosen)
        elif shape == "json":
            gold = json.dumps({"title": topic, "text": chosen[0]}, ensure_ascii=False)
        elif shape == "lower":
            gold = gold.lower()
        names = draw.sample(sorted(CONSTRAINTS), len(CONSTRAINTS))
        if shape in ("bullets", "json"):  # what gives the text its shape is always asked for
            names = [shape, *(name for name in names if name != shape)]
        met = [(name, CONSTRAINTS[name].drawn(gold, draw)) for name in names]
        taken = [(name, value) for name, value in met if value is not None][: draw.randint(1, 3)]
        said = " ".join(CONSTRAINTS[name].says[language].format(_shown(value)) for name, value in taken)
        text = f"{ASKED[language].format(topic)} {said}"
        answer = {"constraints": [list(one) for one in taken], "said": said, "gold": gold}
        identity = problem_id("instructions", topic, json.dumps(answer["constraints"], ensure_ascii=False))
        found.append(Problem(identity, "instructions", "instructions", ({"role": "user", "content": text},), answer))
    return found


def _shown(value: Any) -> str:
    return " and ".join(value) if isinstance(value, list) else str(value)
