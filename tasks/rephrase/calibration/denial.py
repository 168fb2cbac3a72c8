"""Negations added and removed, each so that the sentence still reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from tasks.rephrase.calibration.edits import (
    Change,
    Pool,
    Text,
    cased,
    lists,
    literal_spans,
    outside,
    replaced,
    sentence_at,
)

DENIES = re.compile(r"\b(?:not|no|never|cannot|none|nor|neither|without|nothing|unless)\b|n['’]t\b|[不没未无]", re.I)
# Where "not" may follow: never at a sentence's beginning (a question), before another "not", or in "what is called".
AUXILIARY = re.compile(
    r"(?<=[\w`$\")”’] )(?<!what )(?<!that )(?<!as )(?<!whether )(?<!if )"
    r"(is|are|was|were|can|could|will|would|should|must)"
    r"(?= (?!not\b|never\b|no\b|concerned\b|only\b|also\b|still\b|what\b|that\b|to\b|then\b)[\w`$(])"
)
PERFECT = re.compile(r"(?<=\w )(has|have|had)(?= (?!not\b)(?:been|become|made|shown|taken|\w{3,}ed)\b)")
CHINESE_VERB = re.compile(
    r"(?<![不没未无非是])(?:(?<![只就但而还凡若要总正])(是)(?![否不])|(能够|可以|能)(?![力量源否])|(会)(?=[在使让把被导引]))"
)
CHINESE_HAVE = re.compile(r"(?<![没所只具拥含享占惟唯])有(?=[一两三四五六七八九十\d])")


def negation(text: Text, pool: Pool) -> Iterator[Change]:
    """`is` becomes `is not`, `never` goes, `unless` becomes `if`, `leads` becomes `does not lead`; 是, 不是."""
    body = text.rewrite
    blocked = literal_spans(body)
    for change in (*_removed(body), *_added(body)):
        if all(outside(blocked, start, max(end, start + 1)) for start, end, _ in change.edits):
            yield change


def _removed(body: str) -> Iterator[Change]:
    for old, new in lists()["undenied"].items():
        for match in re.finditer(rf"(?<![\w-]){old}(?![\w-])", body, re.I):
            span = match.span()
            replacement = match.expand(new) if "\\" in new else new
            if not replacement and body[span[1] : span[1] + 1] == " ":
                span = (span[0], span[1] + 1)
            yield replaced(body, span, cased(replacement, match.group()) if replacement else "")
    for match in re.finditer(r"\b([Nn])either\b([^.;]{1,80}?)\bnor\b", body):
        both = "Both" if match[1] == "N" else "both"
        yield replaced(body, match.span(), f"{both}{match[2]}and")
    for match in re.finditer(r"\b(does|do|did) not (\w+)", body):
        plain = {"does": _third(match[2]), "do": match[2], "did": f"did {match[2]}"}[match[1]]
        if match[2] not in ("only", "just", "always", "necessarily"):
            yield replaced(body, match.span(), plain)
    for old, new in lists()["undenied_zh"].items():
        for match in re.finditer(old, body):
            yield replaced(body, match.span(), match.expand(new))


def _added(body: str) -> Iterator[Change]:
    for match in AUXILIARY.finditer(body):
        if _plain(body, match.start()):
            yield replaced(body, match.span(), "cannot" if match.group() == "can" else f"{match.group()} not")
    for match in PERFECT.finditer(body):
        if _plain(body, match.start()):
            yield replaced(body, match.span(), f"{match.group()} not")
    for match in _verbs().finditer(body):
        if _plain(body, match.start()):
            base, tense = _forms()[match.group(1)]
            yield replaced(body, match.span(1), f"{tense} not {base}")
    for match in CHINESE_VERB.finditer(body):
        if _plain(body, match.start()):
            yield replaced(body, match.span(), f"不{match.group()}")
    for match in CHINESE_HAVE.finditer(body):
        if _plain(body, match.start()):
            yield replaced(body, match.span(), "没有")


def _plain(body: str, place: int) -> bool:
    """Whether the sentence states something and denies nothing yet: a second negation may take back the first."""
    sentence = sentence_at(body, place)
    return not sentence.rstrip("*_ ").endswith(("?", "？")) and not DENIES.search(sentence)


def _third(verb: str) -> str:
    irregular = {"have": "has", "do": "does", "be": "is", "go": "goes"}
    if verb in irregular:
        return irregular[verb]
    if re.search(r"(?:s|x|z|ch|sh)$", verb):
        return verb + "es"
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + "s"


@cache
def _forms() -> dict[str, tuple[str, str]]:
    """Finite form -> (base, auxiliary), for verbs whose form is no noun and no participle."""
    forms = {_third(base): (base, "does") for base in lists()["verbs"]}
    return forms | {past: (base, "did") for base, past in lists()["pasts"].items()}


@cache
def _verbs() -> re.Pattern[str]:
    return re.compile(
        r"(?<=[a-z)`$] )(?<!to )(?<!which )(?<!that )(?<!what )(?<!by )(?<!where )"
        rf"({'|'.join(sorted(_forms()))})(?= [\w`$(])"
    )
