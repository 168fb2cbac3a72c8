"""What the last words to a request say of it: that it is done, that it is not, or nothing.

Words decide, clause by clause, in English and Chinese. Names and texts that a task itself holds are taken out first: a
ticket may be called "Login fails". A denial that speaks of a first attempt or of something else ("I couldn't find a
cheaper one, so I booked the 9:40") is none. What words can't show (irony, "imagine that ...") passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from training.rl.worlds.task import Request, Task
from training.rl.worlds.wording import FRAMES

VALUE = "§"
"""What stands for a text of the task."""
_SHORT_FORMS = (("’", "'"), ("can't", "can not"), ("cannot", "can not"), ("won't", "will not"), ("n't", " not"))
_CLAUSES = re.compile(
    r"[.,:](?!\d)|(?<!\d)[.,:]|[!;\n()。，！；：、（）—–]|(?<=[?？])|\b(?:but|and|so|because|then|though|yet)\b|但|所以|因为|不过"
)
_SENTENCES = re.compile(r"[.](?!\d)|[!?;\n。！？；]")
_FULFIL = (
    r"do|did|done|doing|complet\w*|finish\w*|fulfil\w*|carry|carried|perform\w*|execut\w*|process\w*|ma[dk]e|help\w*"
    r"|manage\w*|able|allowed|permitted|comply|succe\w+|proceed|continue|true|possible|happen\w*|go|gone|work|worked"
    r"|chang\w+|touch\w*"
)
_CHINESE_FULFIL = ("做", "完成", "成功", "执行", "办", "发生", "处理", "改", "进行", "成")
_DENIALS = (
    r"\b(?:not|never)(?: \w+){{0,3}}? (?:{verbs})\b",
    r"\b(?:nothing|none)\b.*\b(?:{verbs})\b",
    r"\bno(?: \w+){{1,3}} (?:was|were|is|are|has been|have been)(?: \w+)? (?:{verbs})\b",
    r"\bnothing at all\b|\b(?:not|never) \w+ anything\b",
    r"(?:无法|没能|未能|没法|我不能|不能(?:完成|做|执行|办)|[做办]不[到了成])",
    r"(?:没有?|未曾?|并未|尚未)(?:被|给)?(?:{acts})",
    r"(?:什么都没|没有任何|不可能|没有权限|权限不足|缺少权限)",
)
_WORDS = re.compile(
    r"\b(?:fail\w*|refus\w+|reject\w*|declin\w+|denied|impossible|unsuccessful\w*|in vain|abort\w*|kidding|untrue|false"
    r"|unable|lie|lied|error|nowhere near|undone|reverted)\b|失败|拒绝|假的|骗你|不行"
)
"""Words that deny by themselves, unless the request or the right answer uses them."""
_NO_PERMISSION = re.compile(
    r"(?:\bno|\bnot|\black\w*|\bwithout|\bmiss\w+|\bneeds?|\brequires?|\binsufficient|\bfirst)\b.*\bpermi(?:ssions?|tted)\b"
    r"|\bpermissions?\b.*\b(?:no|not|missing|lack\w*|denied|refused|insufficient|needed|required|first)\b"
    r"|(?:没有?|无|缺少?|不足|不够|未|需要?|得先|被拒).*权限|权限.*(?:没有?|无|缺少?|不足|不够|未|需要?|被拒|拒绝)"
)
_NO_MATTER = re.compile(
    r"\bno permissions?\b(?: \w+){0,2} (?:need\w*|requir\w*|necessary|missing|lack\w*)\b"
    r"|\bpermissions?\b(?: \w+){0,2} (?:not|never|no)(?: \w+)? (?:need\w*|requir\w*|necessary|problem|issue|missing"
    r"|denied|lack\w*|refused)\b"
    r"|\b(?:not|no|never|without)(?: \w+)? (?:lack|need|requir|miss)\w*(?: \w+){0,2} permissions?\b"
    r"|(?:不需要|无需|不用|不缺|不是没有?)[^。；]*权限|权限(?:没有?问题|不成问题|不缺)"
)
"""That permission did not matter."""
_HEDGES = re.compile(
    r"\b(?:first|initially|before|earlier|at once|right away|immediately|until|else|more|further|others?|another|rest"
    r"|original|for good|permanently|be undone|only|any more|anymore|any longer|no longer|sure|need|have to|has to"
    r"|worry|hesitate|mind|just|simply|sooner|cheaper|yesterday)\b|\bno (?:errors?|failures?|problems?)\b"
    r"|\bwithout (?:an?y? )?(?:errors?|failures?|problems?)\b"
    r"|起初|一开始|最初|刚开始|第一次|先前|其他|其它|别的|更早|之前|以前|谁也|其余"
)
"""What makes a denial one of something else, of an attempt before, or of a worry."""
_NEGATIVE = re.compile(
    r"\b(?:not?|never|nothing|none|nobody|nowhere|neither|nor|without|sorry|unfortunately|afraid|hardly|barely)\b"
    r"|没|未|不|无|缺|抱歉|对不起|遗憾"
)
_GONE = re.compile(r"\b(?:any ?more|any longer|no longer|now)\b|\b(?:is|are|will) not\b|了$")
"""What is so no more may be what was asked for."""
_CLAIMS = re.compile(
    r"\b(?:done|finished|completed?|successful\w*|succeeded|worked|went through|all set|taken care of|anyway|sorted"
    r"|ready|granted|fulfilled|settled|managed|arranged|accomplished|over|came true)\b|\bi did (?:it|this|that|so)\b"
    r"|已经?|完成|办好|做好|搞定|成功|好了|[做办]了"
)
_TOTAL = re.compile(
    r"\b(?:everything|all|finished|completed?|successful\w*|worked|anyway|granted|fulfilled)\b"
    r"|\b(?:it|this|that)(?: is|'s| was| has been)? done\b|\bdid (?:it|this|that|so)\b|全部|都已|成功"
)
"""What may not be said where only a part was done."""
_SUPPOSED = re.compile(
    r"\b(?:if|once|when|until|unless|to|please|would|could|can|should|shall|will|may|might|must|asked|wanted|wish|miss\w+"
    r"|tried|need\w*|lack\w*|denied|refused|before|cannot|unable|insufficient)\b|如果|请|先|才能|需要|缺|想|要求|拒|不足|以便|之后"
)
"""What speaks of what might be, or was asked for."""
_ACTED = re.compile(r"^(?:i (?:have )?)?(?!tri|stopp|ask|want|need|wait|intend|plann)\w+ed\b")
"""Rescheduled as you asked."""
_IRREGULAR: Mapping[str, str] = {
    "send": "sent", "pay": "paid", "freeze": "froze|frozen", "take": "took|taken", "give": "gave|given",
    "write": "wrote|written", "put": "put", "get": "got|gotten", "make": "made", "go": "went|gone", "find": "found",
    "tell": "told", "read": "read", "set": "set", "buy": "bought", "bring": "brought", "keep": "kept", "drop": "dropp",
}  # fmt: skip
_SHORT = ("add", "buy", "pay", "put", "set", "tag")
_STOP = frozenset(
    "about again also been cart could does done euros from have hello here into just know look more much must none"
    " not now only over please same shall should some something sorry tell that them then there these they thing"
    " things this those time told want were what when which whom will with without would your yours you".split()
) | {
    word
    for styles in FRAMES.values()
    for frame in styles["english"]
    for word in re.findall(r"[a-z]+", re.sub(r"\{\w+\}", "", frame.lower()))
}
_COURTESIES = "".join(re.sub(r"\{\w+\}", "|", frame) + "|" for styles in FRAMES.values() for frame in styles["chinese"])


def fault_of_closing(task: Task, request: Request, text: str, allowed: bool, part: bool) -> str | None:
    """What is wrong with the last words to a request, None where they say what became of it.

    Args:
        allowed: whether it could be done; else permission was missing.
        part: whether something of it was done nevertheless.
    """
    said = _plain(task, text)
    if not allowed:
        permission = [
            one for one in _SENTENCES.split(said) if _NO_PERMISSION.search(one) and not _NO_MATTER.search(one)
        ]
        if not permission:
            return "it does not say that permission is missing"
        return "it claims what was not done" if _claims(task, request, said, part) else None
    clauses = [clause.strip() for clause in _CLAUSES.split(said) if clause.strip()]
    known = _plain(task, f"{request.text}\n{request.answer}\n{task.world.name}")
    if any(_denied(clause, known, request) for clause in clauses):
        return "it denies what was done"
    return None if any(_of_matter(clause, known, request) for clause in clauses) else "it says nothing of what was done"


def _plain(task: Task, text: str) -> str:
    """Small letters, long forms, and a sign for every text that the task holds."""
    values = "|".join(map(re.escape, sorted(_texts(task), key=lambda value: (-len(value), value))))
    text = re.sub(rf"(?<![a-z0-9])(?:{values})(?![a-z0-9])", VALUE, text.casefold()) if values else text.casefold()
    for short, long in _SHORT_FORMS:
        text = text.replace(short, long)
    return text


def _texts(task: Task) -> set[str]:
    given = [value for one in task.requests for _, arguments in one.plan for value in arguments.values()]
    given += [value for one in task.requests for value in one.arguments.values()]
    given += [form for fact in task.rubric.says for form in fact]
    found = {str(value).casefold().rstrip(".。") for value in _flat(given) if not isinstance(value, bool)}
    return {value for value in found if value and value not in ("permission", "permissions", "权限")}


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, Mapping):
            yield from _flat(value.values())
        elif isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _verbs(request: Request) -> str:
    """Of what was asked for: stems with any ending, and irregular forms."""
    words = {word for name, _ in request.plan for word in name.split("_")} | set(_words(request.text))
    verbs = {word for word in words if (len(word) > 3 or word in _SHORT) and word not in _STOP}
    stems = {word[:-1] if word.endswith("e") else word for word in verbs}
    irregular = [_IRREGULAR[word] for word in words if word in _IRREGULAR]
    return "|".join([_FULFIL, *irregular, *(rf"{re.escape(stem)}\w*" for stem in sorted(stems))])


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{3,}", text.casefold())


def _pairs(text: str) -> set[str]:
    """Two Chinese characters each that stand together, courtesies aside."""
    found = re.findall(r"(?=([\u4e00-\u9fff]{2}))", text)
    return {pair for pair in found if pair not in _COURTESIES}


def _lacks_permission(text: str) -> bool:
    return bool(_NO_PERMISSION.search(text)) and not _NO_MATTER.search(text)


def _denied(clause: str, known: str, request: Request) -> bool:
    if _HEDGES.search(clause):
        return False
    if _lacks_permission(clause):
        return True
    if _NEGATIVE.search(clause):  # else the patterns of this request need not be compiled
        acts = "|".join((*_CHINESE_FULFIL, *sorted(_pairs(known))))
        if re.search("|".join(_DENIALS).format(verbs=_verbs(request), acts=acts), clause):
            return True
    return any(word[0] not in known for word in _WORDS.finditer(clause))


def _of_matter(clause: str, known: str, request: Request) -> bool:
    """Whether it says something of the matter, and no less than that it is so."""
    if clause.endswith(("?", "？")) or (_NEGATIVE.search(clause) and not _GONE.search(clause)):
        return False
    if VALUE in clause or _CLAIMS.search(clause) or _ACTED.search(clause) or _pairs(clause) & _pairs(known):
        return True
    functions = " ".join(name.replace("_", " ") for name, _ in request.plan)
    stems = {word[:5] for word in _words(f"{known} {functions}") if len(word) > 3 and word not in _STOP}
    return any(word[:5] in stems for word in _words(clause) if len(word) > 3 and word not in _STOP)


def _claims(task: Task, request: Request, said: str, part: bool) -> bool:
    answer = [one.strip() for one in _CLAUSES.split(_plain(task, request.answer)) if len(one.strip()) > 3]
    functions = rf"\b(?:i|is|are|was|were|has|have|been|got|went|now)\b.*\b(?:{_verbs(request)})"
    for clause in (one.strip() for one in _CLAUSES.split(said)):
        if clause in (answer[-1:] if part else answer):  # what comes last was not done
            return True
        if _NEGATIVE.search(clause) or _SUPPOSED.search(clause):
            continue
        if _TOTAL.search(clause) if part else _CLAIMS.search(clause) or re.search(functions, clause):
            return True
    return False
