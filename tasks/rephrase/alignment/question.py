"""A part with a question that it answers: what that looks like, and whether the question is such a one.

The answer is the source's own text, word for word, so nothing in it can be lost, added or changed. What a rewriter
writes is the question alone, and that can do two things wrong: ask for what the part does not say, or presuppose what
is not so. Both need words that the part does not have, or a definition that it does not give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from tasks.rephrase.alignment.pair import HEADING, Pair, Verdict, words
from tasks.rephrase.alignment.reading import Readers, near
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.structure import outside, structure

ASKING = "What|Who|Which|How|When|Where|Why"
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"question": {"type": "string", "pattern": f'^({ASKING}) [^"?]{{4,90}}\\?$'}},
        "required": ["question"],
        "additionalProperties": False,
    },
    sort_keys=True,
)
"""What an engine may answer: a small model that is held to it can neither chat nor loop."""
FORM = re.compile(rf"(?:{ASKING}) [^?\n]+\?")
DEFINITION = re.compile(r"What (?:is|are|was|were)(?: meant by)? (?:(?:an?|the) )?(?P<term>.+)\?", re.I)
DEFINED = (
    r"(?:^|[.;:!?]\s+)(?:(?:an?|the)\s+)?{term}\s+(?:\([^)]*\)\s+)?(?:\w+ly\s+|also\s+)?"
    r"(?:(?:is|are|was|were)\s+(?:an?|the|any|one)\b|means?\b|refers?\s+to\b|stands?\s+for\b|denotes?\b)"
)
"""A sentence that says what a term is: it begins with the term, and does not only say something of it."""
ELSEWHERE = re.compile(r"\s*(?:<[^>]*>\s*)?(?:\([^)]*\)\s*)?(?:see\b|\Z)", re.I)
"""An entry that only names another."""
ARTICLE = re.compile(
    rf"(\A(?:{ASKING}) (?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|may|might|must) (?=A)"
    r"|\b(?=a))([Aa])n? (?=[\W_]*(?P<next>[^\W\d_]+))"
)
"""In a capital only where a noun must begin: elsewhere it is a name, as in Apollo A and type A influenza."""
CONSONANT = re.compile(r"uni(?!n|mp|m[^o])|us[aeiu]|ut[aeio]|u[bku]|eu|ewe|one\b|once\b|u-", re.I)
"""What begins with a vowel's letter and another sound: a unit, a user, a one-way street."""
PLAIN = frozenset(
    "what who whom whose which how when where why is are was were be been do does did has have had can could may might"
    " must should will would a an the of in on at to for with by from and or as it its this that these those they their"
    " happens happen called mean means kind many much not".split()
)
"""Words that a question may have of its own: they ask, and say nothing."""
STEM, ENDING = 4, 3
"""Letters that two forms of a word share at least, and that each may have besides."""


def corrected(question: str, part: str) -> str:
    """A small model's question with the spelling of the heading that it puts into words, and with the article that the
    next word wants: `What is a onc?` of the entry ONC is `What is an ONC?`."""
    if heading := _entry(question, part):
        bare = re.sub(r"\(.*?\)", "", heading["text"]).strip()
        spelled = r"\W+".join(map(re.escape, words(bare)))
        question = (
            re.sub(rf"(?<!\w){spelled}(?!\w)", lambda _: bare, question, count=1, flags=re.I) if spelled else question
        )
    return ARTICLE.sub(lambda match: f"{match[1]}{match[2]}{'n' * _vowel(match['next'])} ", question)


def _vowel(word: str) -> bool:
    """Whether a word begins with a vowel's sound. Capitals without a vowel are spelled out: an RFC, but a LAN."""
    if re.fullmatch("[A-Z]+", word) and (word[0] in "AEIOU" or not re.search("[AEIOU]", word)):
        return word[0] in "AEFHILMNORSX"
    return re.match(r"[aeiou]|hour|honest|heir|honou?r", word, re.I) is not None and not CONSONANT.match(word)


def answered(question: str, part: str) -> str:
    """The part with its question: in the place of the heading that it puts into words, else before everything."""
    text, heading = part.strip(), _entry(question, part.strip())
    if heading is None:
        return f"{question}\n\n{text}"
    return f"{text[: heading.start()]}{heading['signs']}{question}{text[heading.end() :]}"


def reply(question: str) -> str:
    """A question as a model writes it that is held to the schema."""
    return json.dumps({"question": question}, ensure_ascii=False)


def question(pair: Pair, config: AlignmentConfig) -> Verdict:
    """One question, not asked before, in words of the part and of the one before; what it wants defined is defined."""
    said = pair.question
    if not said:
        return Verdict("question", 1.0, True)
    own, here = _own(said), set(_own(pair.source))
    known = here | set(_own(pair.before_source))
    strange = [word for word in own if not _stands(word, known)]
    entry, term = _entry(said, pair.source), DEFINITION.fullmatch(said)
    why = ""
    if not FORM.fullmatch(said):
        why = "it is no question of one sentence"
    elif _plain(said) in map(_plain, pair.asked):
        why = "the same was asked of an earlier part"
    elif strange:
        why = f"asks about {', '.join(strange[:4])}, of which the part says nothing"
    elif not any(_stands(word, here) for word in own):
        why = "asks about nothing that the part speaks of"
    elif entry is None and any(heading.start() for heading in _headings(pair.source.strip())):
        why = "its part has several entries, and it asks about none of them"
    elif term and not _defined(pair):
        why = f"the part does not say what {term['term'][:60]} is"
    return Verdict("question", float(not why), not why, why, rewrite_sentence=said if why else "")


def answerable(pair: Pair, networks: Readers, config: AlignmentConfig) -> Verdict:
    """The question is about what its part is about: the cosine of the two; 1 where it asks what a term is of which the
    part is the entry (of a name the network knows nothing)."""
    if not pair.question or (DEFINITION.fullmatch(pair.question) and _defined(pair)):
        return Verdict("answerable", 1.0, True)
    cosine = near(networks, pair.question, pair.source)
    if cosine >= config.answerable:
        return Verdict("answerable", cosine, True)
    why = f"cosine {cosine:.2f} to the part that should answer it; {config.answerable:g} is wanted"
    return Verdict("answerable", cosine, False, why, rewrite_sentence=pair.question)


def _entry(question: str, part: str) -> re.Match[str] | None:
    """The heading of the part whose every word the question has, and that has one that says something."""
    own = set(_own(question))
    return next((heading for heading in _headings(part) if own >= set(_own(heading["text"])) > set()), None)


def _headings(part: str) -> Iterator[re.Match[str]]:
    """The headings of the part; a comment in its code is none."""
    free = outside(structure(part).blocks)
    return (heading for heading in HEADING.finditer(part) if free(heading.start() + 1))


def _defined(pair: Pair) -> bool:
    """Whether the part is, or has, the entry of the term that is asked for, or a sentence that says what it is."""
    found = DEFINITION.fullmatch(pair.question)
    term = _plain(found["term"]) if found else ""
    for heading in _headings(pair.source):
        bare = re.sub(r"\(.*?\)", " ", heading["text"])
        if term in (_plain(bare), _plain(heading["text"])):
            return not ELSEWHERE.match(pair.source, heading.end())
    spelled = DEFINED.format(term=r"\W+".join(map(re.escape, term.split())))
    return bool(term) and re.search(spelled, pair.source, re.I | re.M) is not None


def _own(text: str) -> list[str]:
    return [word for word in map(str.lower, words(text)) if word not in PLAIN]


def _stands(word: str, known: Collection[str]) -> bool:
    """Whether a word stands there, a longer one perhaps in another of its forms."""
    return word in known or any(_related(word, other) for other in known)


def _related(word: str, other: str) -> bool:
    shared = next((place for place, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), None)
    shared = min(len(word), len(other)) if shared is None else shared
    return shared >= STEM and max(len(word), len(other)) - shared <= ENDING and word.isalpha()


def _plain(text: str) -> str:
    return " ".join(map(str.lower, words(text)))
