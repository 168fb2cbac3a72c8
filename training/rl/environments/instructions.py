"""Instructions that code can check, rows of `CONSTRAINTS`, and ones that only a judge can, rows of `JUDGED`.

A problem is made from its gold reply: a short text is drawn, and constraints are taken that it meets. A reply must also
say something of its topic, as far as words show, and pass the layer against replies which only seem to comply
(`hacks.py`). Where a judge is configured (`Services.judge`), it must see that the text makes sense, too.

`answer` is {"language", "topic", "constraints": [[name, value], ...], "judged": [name, ...], "said": what the prompt
says of them, "gold": the text}.
"""

from __future__ import annotations

import json
import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from model.chat import Reply
from model.dialogue import strict_json
from training.draw import problem_id
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.final import affirms
from training.rl.environments.hacks import LEAST, WORD, hack, hollow, is_sign, plain, sentences, words
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict
from training.rl.environments.services import Services
from training.rl.environments.topics import ASKED, TOPICS, Language, Topic
from training.rl.quoting import DATA, quoted


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


def _stands(word: str, text: str) -> bool:
    """Whether a text has a word or a phrase: `very` is none of `every`, and Chinese has no space around its words."""
    around = r"[^\W\u4e00-\u9fff]" if word.isascii() else "(?!)"
    return re.search(rf"(?<!{around}){re.escape(word)}(?!{around})", text, re.IGNORECASE) is not None


def _read(text: str) -> str:
    """A text as its reader sees the words: on one line, without Markdown's emphasis."""
    return re.sub(r"[*_~`]", "", " ".join(plain(text).split()))


def _says(text: str) -> bool:
    """Whether there is a word in it that is more than a letter or a number."""
    return not all(map(is_sign, words(text)))


def _bullets(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("- ") and _says(line)]


def _sentences(text: str) -> list[str]:
    return [one for one in sentences(text) if _says(one)]


def _record(text: str) -> dict[str, Any] | None:
    try:
        found = strict_json(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _texts(value: Any) -> list[str] | None:
    """The texts of a value in JSON: itself, or those of a list; None where there are others."""
    parts = value if isinstance(value, list) else [value]
    return parts if parts and all(isinstance(one, str) and WORD.search(one) for one in parts) else None


def _filled(text: str, keys: list[str]) -> bool:
    record = _record(text)
    return record is not None and sorted(record) == keys and None not in map(_texts, record.values())


def _prose(text: str) -> str:
    """What a text says: of an object in JSON the values."""
    record = _record(text)
    return text if record is None else "\n".join(one for value in record.values() for one in _texts(value) or ())


def _counted(text: str) -> int:
    """Words as a reader counts them, among whom numbers and single letters may be a third."""
    found = words(text)
    signs = sum(map(is_sign, found))
    return len(found) - signs + min(signs, (len(found) - signs) // 2)


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


COMMAS = frozenset(",，、،‚﹐､٫٬ꓹ")


def _commas(text: str) -> bool:
    """Whether there is a comma, of any writing: Unicode calls most of them so, and letters with one below them."""
    marks = {one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) == "Po"}
    return bool(COMMAS & set(text)) or any("COMMA" in unicodedata.name(one, "") for one in marks)


CONSTRAINTS: Mapping[str, Constraint] = {
    "at_least": Constraint(
        {"english": "Use at least {0} words.", "chinese": "至少写{0}个字。"},
        lambda text, count: _counted(text) >= count,
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
        lambda text, word: bool(words(text)) and not _stands(word, _read(text)),
        _absent,
        lambda text, word: f"{text} {word}",
    ),
    "sentences": Constraint(
        {"english": "Write exactly {0} sentences.", "chinese": "正好写{0}句话。"},
        lambda text, count: len(_sentences(text)) == count,
        lambda text, draw: len(_sentences(text)) if not _bullets(text) and _record(text) is None else None,
        lambda text, count: text + " One more.",
    ),
    "bullets": Constraint(
        {
            "english": 'Give exactly {0} lines, each of which begins with "- ".',
            "chinese": "正好写{0}行，每行以“- ”开头。",
        },
        lambda text, count: len(_bullets(text)) == count == len([line for line in text.split("\n") if line.strip()]),
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
        lambda text, _: bool(words(text)) and plain(text) == plain(text).lower(),
        lambda text, draw: True if text == text.lower() and _language(text) == "English" else None,
        lambda text, _: text.title(),
    ),
    "no_commas": Constraint(
        {"english": "Use no commas.", "chinese": "不要使用逗号。"},
        lambda text, _: bool(words(text)) and not _commas(text),
        lambda text, draw: None if _commas(text) else True,
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


@dataclass(frozen=True)
class Judged:
    """One kind of constraint that a judge sees."""

    says: Mapping[Language, str]
    """How it is asked for."""
    asks: str
    """The judge's question."""
    met: Callable[[Topic], str]
    """A sentence with which a text meets it, or nothing where its facts do."""
    broken: Mapping[Language, str]
    """A sentence with which it does not; nothing where leaving out what meets it is enough."""


JUDGED: Mapping[str, Judged] = {
    "child": Judged(
        {"english": "Write so that a child of six understands it.", "chinese": "写得让六岁的孩子也能看懂。"},
        "Does a child of six understand every sentence of this text?",
        lambda topic: "",
        {
            "english": "Its heterogeneous constituents undergo enzymatic oxidation.",
            "chinese": "其异质成分经历酶促氧化反应。",
        },
    ),
    "example": Judged(
        {"english": "Give an example.", "chinese": "举一个例子。"},
        "Does this text give an example of something that it says?",
        lambda topic: topic.example,
        {"english": "", "chinese": ""},
    ),
    "reason": Judged(
        {"english": "Say why something is so.", "chinese": "说明一件事的原因。"},
        "Does this text give a reason for something that it says?",
        lambda topic: topic.reason,
        {"english": "", "chinese": ""},
    ),
}
SENSE = "Is this text about {topic}, and does each of its sentences make sense?"
QUESTION = f"A text that someone wrote:\n\n{{reply}}\n\n{DATA} {{asks}} Answer yes or no."


class Instructions(Environment):
    """One reply, which must meet every constraint, speak of its topic and pass every check of the layer against
    hacks."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.waits = services.judge is not None

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        if reply.calls:
            return verdict(False, "a call where a text was asked for")
        if found := refused(problem.answer, reply.content):
            return verdict(False, found)
        return self._judged(problem, reply.content)

    def _judged(self, problem: Problem, text: str) -> Outcome:
        """What the judge says of a reply that passed every rule."""
        judge, answer = self.services.judge, problem.answer
        if judge is None:
            if answer["judged"]:
                raise EnvironmentUnavailable(
                    f"problem {problem.id} asks for what only a judge sees, and none is configured: give rl.judge an "
                    "endpoint, or leave the set 'judged' out"
                )
            return verdict(True, "")
        asked = {"sense": SENSE.format(topic=answer["topic"]), **{name: JUDGED[name].asks for name in answer["judged"]}}
        for name, question in asked.items():
            if not affirms(judge(QUESTION.format(reply=quoted(text, "text"), asks=question))):
                return verdict(False, f"the judge sees no {name}")
        return verdict(True, "")

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        answer = problem.answer
        gold, language = answer["gold"], answer["language"]
        texts = [CONSTRAINTS[name].broken(gold, value) for name, value in answer["constraints"]]
        texts += [answer["said"], "As requested, I followed every rule.", f"{gold} As you asked."]
        texts += ["x", "...", answer["topic"], *(_refilled(answer, filler) for filler in FILLERS[language])]
        topic = TOPICS[language][answer["topic"]]
        for name in answer["judged"]:
            judged = JUDGED[name]
            without = re.sub(re.escape(judged.met(topic)), "", gold, flags=re.IGNORECASE)
            texts.append(f"{without} {judged.broken[language]}")
        return [[Reply(text)] for text in texts]


def refused(answer: Mapping[str, Any], text: str) -> str | None:
    """Which rule refuses a text; None where none does."""
    for name, value in answer["constraints"]:
        if not CONSTRAINTS[name].holds(text, value):
            return f"breaks {name}"
    values = dict(answer["constraints"])
    end = values.get("ends", "")
    given = set(words(f"{values.get('keyword', '')} {end}"))
    topic = TOPICS[answer["language"]][answer["topic"]]
    own = _prose(text).rstrip().removesuffix(end)
    least = max(1, min(LEAST, values.get("at_most", LEAST)) - len(words(end)))
    if found := hollow(own, (answer["topic"], *topic.about), given, least):
        return f"hollow: {found}"
    found = hack(text, answer["said"])
    return f"hack: {found}" if found else None


FILLERS: Mapping[Language, tuple[str, ...]] = {
    "english": (
        " ".join(string.ascii_lowercase),
        " ".join(map(str, range(1, 60))),
        "qwer tyui asdf zxcv poiu lkjh mnbv trew gfds vcxz rtyu fghj wxyz plok ijuh ygtf rdes waqz",
        "my uncle has two old cars and he sold me the red one when i came to see him in the town last week",
    ),
    "chinese": (
        " ".join(map(str, range(1, 60))),
        "甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳午未申酉戌亥",
        "我的叔叔有两辆旧车上周我去城里看他的时候他把红色的那辆卖给了我",
    ),
}
"""What a text is filled with that says nothing of its topic: letters, numbers, typed letters, another topic."""


def _refilled(answer: Mapping[str, Any], filler: str) -> str:
    """A gold reply with other words in its place, but for those that its constraints ask for: it meets them."""
    values, gold = dict(answer["constraints"]), answer["gold"]
    fill = cycle(WORD.findall(filler))

    def other(text: str) -> str:
        kept = str(values.get("keyword", "")).casefold()
        parts = re.split(f"({re.escape(kept)})", text, flags=re.IGNORECASE) if kept else [text]
        return "".join(part if place % 2 else WORD.sub(lambda _: next(fill), part) for place, part in enumerate(parts))

    if (record := _record(gold)) is not None:
        return json.dumps({key: other(value) for key, value in record.items()}, ensure_ascii=False)
    end = values.get("ends", "")
    return other(gold.removesuffix(end)) + end


def problems(count: int, seed: str) -> list[Problem]:
    """`count` problems with one to three constraints each."""
    return _made(count, "instructions", seed)


def judged_problems(count: int, seed: str) -> list[Problem]:
    """`count` problems with one constraint that a judge sees beside one to three that code checks."""
    return _made(count, "judged", seed)


def _made(count: int, kind: str, seed: str) -> list[Problem]:
    draw = random.Random(f"{kind}/{seed}")
    found: list[Problem] = []
    while len(found) < count:
        language: Language = draw.choice(("english", "english", "chinese"))
        topic = draw.choice(sorted(TOPICS[language]))
        chosen = draw.sample(TOPICS[language][topic].facts, draw.randint(2, 4))
        shape = draw.choice(("prose", "prose", "bullets", "json", "lower"))
        judged = [draw.choice(sorted(JUDGED))] if kind == "judged" else []
        if judged and (sentence := JUDGED[judged[0]].met(TOPICS[language][topic])):
            chosen.append(sentence)
        gold = ("" if language == "chinese" else " ").join(chosen)
        if shape == "bullets":
            gold = "\n".join(f"- {one}" for one in chosen)
        elif shape == "json":
            gold = json.dumps({"title": topic, "text": chosen[-1]}, ensure_ascii=False)
        elif shape == "lower":
            gold = gold.lower()
        names = draw.sample(sorted(CONSTRAINTS), len(CONSTRAINTS))
        if shape in ("bullets", "json"):  # what gives the text its shape is always asked for
            names = [shape, *(name for name in names if name != shape)]
        met = [(name, CONSTRAINTS[name].drawn(gold, draw)) for name in names]
        # a reply shows what it is about by words that the prompt does not give it
        root = topic.removesuffix("s")
        met = [
            (name, value) for name, value in met if name not in ("keyword", "ends") or root not in str(value).lower()
        ]
        taken = [(name, value) for name, value in met if value is not None][: draw.randint(1, 3)]
        rules = [JUDGED[name].says[language] for name in judged]
        rules += [CONSTRAINTS[name].says[language].format(_shown(value)) for name, value in taken]
        said, constraints = " ".join(rules), [list(one) for one in taken]
        message = {"role": "user", "content": f"{ASKED[language].format(topic)} {said}"}
        identity = problem_id(kind, topic, json.dumps([*judged, *constraints], ensure_ascii=False))
        answer = {"language": language, "topic": topic, "constraints": constraints, "judged": judged}
        answer |= {"said": said, "gold": gold}
        # an end may hold all that the text says of its topic, or half of a word that it needs: one in a thousand does
        if refused(answer, gold) is None:
            found.append(Problem(identity, kind, "instructions", (message,), answer))
    return found


def _shown(value: Any) -> str:
    return " and ".join(value) if isinstance(value, list) else str(value)
