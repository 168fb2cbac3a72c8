"""Formulas and code changed in one sign, letter or digit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tasks.rephrase.alignment.pair import CODE, FORMULA, URL
from tasks.rephrase.calibration.edits import (
    Change,
    Pool,
    Span,
    Text,
    draw,
    lists,
    literal_spans,
    outside,
    pick,
    replaced,
)

PLAIN = re.compile(
    r"(?<![\w`/$])[A-Za-z]\d?(?:\([a-z]\))?(?:\^\d)?[ \t]*(?:[=<>≤≥≈]|<=|>=)[ \t]*[\w.()^*/+−-]*[\w)]"
    r"(?:[ \t]*[-+*/^=<>≤≥≈−][ \t]*[\w.()^]*[\w)])*"
)
"""An equation between words: a variable, a relation, numbers and variables."""
SUPERSCRIPTS, SUBSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
SCRIPT = re.compile(rf"[A-Za-z0-9)]+([{SUPERSCRIPTS}{SUBSCRIPTS}])")
COMMAND = re.compile(r"\\[A-Za-z]+")
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def formula(text: Text, pool: Pool) -> Iterator[Change]:
    """One operator, relation, exponent, index, coefficient, function or variable of one formula becomes another."""
    body = text.rewrite
    whole, said = re.sub(r"\s", "", text.source), re.sub(r"\s", "", body)
    for start, end in formula_spans(body):
        inside = body[start:end]
        # A step that the rewriter added has nothing to be held against, nor has what it says again there.
        bare = re.sub(r"\s", "", inside)
        if text.adds and (bare not in whole or said.count(bare) > whole.count(bare)):
            continue
        if not re.search(r"[^\d.,\s]", inside):
            continue  # a number between dollars is no formula
        for span, new in _slips(inside, text.id, start):
            changed = inside[: span[0]] + new + inside[span[1] :]
            if re.sub(r"\s", "", changed) != bare:
                at = (start + span[0], start + span[1])
                yield Change(((*at, new),), f"'{inside}' became '{changed}'")

    for match in SCRIPT.finditer(body):
        if outside(literal_spans(body), *match.span()) and match.group() in text.source:
            digits = SUPERSCRIPTS if match[1] in SUPERSCRIPTS else SUBSCRIPTS
            new = pick([digit for digit in digits[2:] if digit != match[1]], text.id, match.start())
            yield Change(((*match.span(1), new),), f"'{match[1]}' became '{new}' in '{match.group()}'")


def code(text: Text, pool: Pool) -> Iterator[Change]:
    """An option, identifier, path, URL or number in code becomes another."""
    body = text.rewrite
    for match in CODE.finditer(body):
        inside, start = match.group(2), match.start(2)
        if inside not in text.source:
            continue
        for span, new in _misnamed(inside, text, start, pool):
            yield replaced(body, (start + span[0], start + span[1]), new)
    code_spans = sorted(match.span() for match in CODE.finditer(body))
    for match in URL.finditer(body):
        if outside(code_spans, *match.span()) and match.group().rstrip(".,") in text.source:
            words = [
                m
                for m in re.finditer(r"[A-Za-z0-9]{3,}", match.group())
                if m.group() not in ("https", "http", "www", "ftp")
            ]
            for word in words:
                new = _renamed(word.group(), text.id, word.start())
                yield replaced(body, (match.start() + word.start(), match.start() + word.end()), new)


def formula_spans(body: str) -> list[Span]:
    """Formulas, delimiters left out, and plain equations outside code."""
    found: list[Span] = []
    for match in FORMULA.finditer(body):
        group = 6 if match.group(5) else next(number for number in range(1, 5) if match.group(number) is not None)
        found.append(match.span(group))
    blocked = literal_spans(body)
    return found + [
        match.span()
        for match in PLAIN.finditer(body)
        if outside(blocked, *match.span()) and not re.search(r"[A-Za-z]{4,}|=[A-Z]", match.group())
    ]


def _slips(inside: str, *parts: object) -> Iterator[tuple[Span, str]]:
    for old, options in lists()["formula"].items():
        for match in re.finditer(old, inside):
            yield match.span(), pick(options, *parts, match.start())
    for match in re.finditer(r"\\frac(\{[^{}]+\})(\{[^{}]+\})", inside):
        if match[1] != match[2]:
            yield (match.start(1), match.end(2)), match[2] + match[1]
    for match in re.finditer(r"\d+", inside):
        yield match.span(), _digit(match.group(), *parts, match.start())
    commands = [match.span() for match in COMMAND.finditer(inside)]
    braces = [
        match.span(1) for match in re.finditer(r"\\(?:text|mathrm|operatorname|begin|end|mathbb)\{([^}]*)\}", inside)
    ]
    letters = sorted({match.group() for match in re.finditer(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])", inside)})
    for match in re.finditer(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])", inside):
        if outside(sorted(commands + braces), *match.span()) and not (
            len(inside) > 1 and inside[match.start() : match.start() + 2] == "d "
        ):
            near = [letter for letter in lists()["letters"] if match.group() in letter]
            options = [letter for group in near for letter in group if letter != match.group()]
            options = [letter for letter in letters if letter != match.group()] or options
            if options:
                yield match.span(), pick(options, *parts, match.start())


def _misnamed(inside: str, text: Text, start: int, pool: Pool) -> Iterator[tuple[Span, str]]:
    options = [match.span() for match in OPTION.finditer(inside)]
    words = [m.span() for m in NAME.finditer(inside) if len(m.group()) >= 3 and outside(options, *m.span())]
    for span in [*options, *words]:
        old = inside[slice(*span)]
        offered = [
            o for o in pool.literals.get(literal_shape(old), ()) if o not in text.source and o not in text.rewrite
        ]
        # Half of them slips of the pen, half of them names that another text has.
        slip = not offered or (span in words and draw(text.id, start, span) % 2)
        yield span, _renamed(old, text.id, start + span[0]) if slip else pick(offered, text.id, start, span)
    for match in re.finditer(r"(?<![\w.-])\d+(?![\w])", inside):
        yield match.span(), _digit(match.group(), text.id, start + match.start())


def literal_shape(literal: str) -> str:
    """What a piece of code can be replaced by."""
    if literal.startswith("-"):
        return "option" if literal.startswith("--") else "flag"
    if "_" in literal:
        return "snake" if literal.islower() else "SNAKE"
    return "UPPER" if literal.isupper() else "lower" if literal.islower() else "Camel"


def offer(texts: Iterable[str]) -> dict[str, list[str]]:
    """Options and identifiers of the code spans of many texts, by shape."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for match in CODE.finditer(text):
            inside = match.group(2)
            for literal in [*OPTION.findall(inside), *(word for word in NAME.findall(inside) if len(word) >= 3)]:
                found.setdefault(literal_shape(literal), set()).add(literal)
    return {kind: sorted(members) for kind, members in sorted(found.items())}


def _renamed(name: str, *parts: object) -> str:
    """Another name that looks like it: a piece swapped for one of the list, or a letter doubled or dropped."""
    pieces = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^A-Za-z0-9]+", name)
    for place in sorted(range(len(pieces)), key=lambda place: draw(*parts, name, place)):
        for group in lists()["pieces"]:
            if pieces[place].lower() in group:
                new = pick([piece for piece in group if piece != pieces[place].lower()], *parts, name)
                old = pieces[place]
                pieces[place] = (
                    new.upper() if old.isupper() and len(old) > 1 else new.capitalize() if old[0].isupper() else new
                )
                return "".join(pieces)
    letters = [place for place in range(1, len(name)) if name[place].isalpha()]
    if not letters:
        return name + "2"
    place = letters[draw(*parts, name, "letter") % len(letters)]
    if len(name) > 4 and draw(*parts, name, "drop") % 2:
        return name[:place] + name[place + 1 :]
    if name[place].isupper() or draw(*parts, name, "suffix") % 2:
        return name + ("S" if name.isupper() else "s") if not name.lower().endswith("s") else name[:-1]
    return name[:place] + name[place] * 2 + name[place + 1 :]


def _digit(number: str, *parts: object) -> str:
    place = draw(*parts, number) % len(number)
    if len(number) > 1 and place == 0:
        place = len(number) - 1
    new = (int(number[place]) + 1 + draw(*parts, number, "by") % 8) % 10
    return number[:place] + str(new) + number[place + 1 :]
