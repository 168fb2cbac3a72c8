"""Licences: SPDX expressions read in full, other spellings brought to SPDX, headers of programs believed where they
are stricter than what their source declares, and policies enforced.

A policy is a tuple of patterns over SPDX identifiers (`BSD-*`) and of families (`@permissive`). What has no licence, or
one that cannot be read, is refused by every policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

EXPRESSION_CHARS = 1000
"""A longer expression is not read."""
HEADER_CHARS = 6000
"""Where a program's header is looked for."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "public-domain": tuple("CC0-1.0 Unlicense PDDL-1.0 0BSD MIT-0 LicenseRef-public-domain WTFPL CC-PDDC".split()),
    "permissive": (
        *"MIT* BSD-* Apache-* ISC PSF-* Python-* Zlib BSL-1.0 X11* NCSA PostgreSQL HPND*".split(),
        *"Artistic-2.0 Unicode-* CC-BY-[1-4].[05]* ODC-By-1.0 curl OpenSSL* TCL Ruby W3C* ICU".split(),
        *"FTL IJG libpng* NIST-PD* MS-PL AFL-* ECL-2.0 Vim Zend-2.0 PHP-3.* FSFAP*".split(),
    ),
    "weak-copyleft": (
        *"LGPL-* MPL-* EPL-* CDDL-* CPL-1.0 MS-RL Artistic-1.0* OFL-* EUPL-*".split(),
        "GPL-[23].0-* WITH *",
    ),
    "share-alike": ("CC-BY-SA-*", "GFDL-*", "ODbL-*"),
    "copyleft": ("GPL-*",),
    "network-copyleft": ("AGPL-*", "SSPL-1.0", "OSL-*"),
    "restricted": ("CC-BY-NC*", "CC-BY-ND*", "*proprietary*", "BUSL-*", "Elastic-*", "JSON"),
}
"""SPDX identifiers by what they ask of whoever passes a text on, the freest family first; a licence is in the first
that fits. `GPL WITH exception` asks less than GPL."""

_UNKNOWN = frozenset(
    ["", "none", "noassertion", "unknown", "other", "unlicensed", "null", "n/a", "na", "see license", "-", "custom"]
)
_TOKEN = re.compile(r"\s*(\(|\)|[A-Za-z0-9.+\-]+(?::[A-Za-z0-9.+\-]+)?)")
_DEPTH_MAX = 50


@dataclass(frozen=True)
class _Simple:
    """One identifier, with its exception where it has one."""

    name: str
    exception: str = ""


@dataclass(frozen=True)
class _Joined:
    """Two expressions and what joins them: AND asks for both, OR for one."""

    word: str
    left: _Simple | _Joined
    right: _Simple | _Joined


_Tree = _Simple | _Joined


def allowed(licence: str, policy: Sequence[str]) -> bool:
    """Whether a licence may enter under a policy: one side of an `OR`, every side of an `AND`."""
    return refusal(licence, policy) is None


def refusal(licence: str, policy: Sequence[str]) -> str | None:
    """Why a licence may not enter, or None where it may: licence_missing (there is none), licence_unknown (no SPDX
    expression and no known spelling), licence_not_allowed (no pattern of the policy takes it)."""
    if not licence.strip():
        return "licence_missing"
    tree = _read(licence)
    if tree is None:
        return "licence_unknown"
    lower = tuple(pattern.lower() for pattern in patterns(policy))
    return None if _passes(tree, lower) else "licence_not_allowed"


def patterns(policy: Sequence[str]) -> tuple[str, ...]:
    """The patterns over SPDX identifiers that a policy comes to, its families written out."""
    return tuple(
        pattern for entry in policy for pattern in (FAMILIES[entry[1:]] if entry.startswith("@") else (entry,))
    )


def normalised(licence: str) -> str:
    """The licence as an SPDX expression, or as it was written where it cannot be read."""
    tree = _read(licence)
    return licence.strip() if tree is None else _written(tree)


def family(licence: str) -> str:
    """The family of FAMILIES that a licence is in, or `unknown`: of a choice the freest, of a sum the strictest."""
    tree = _read(licence)
    return "unknown" if tree is None else _RANKED[_rank(tree)]


def detected(text: str) -> str | None:
    """The licence that a program's own header names: the strictest of its SPDX tags, else the words of a well-known
    notice."""
    head = text[:HEADER_CHARS]
    tags = [normalised(tag[1].rstrip(" -")) for tag in _TAG.finditer(head)]
    if tags:
        return max(tags, key=lambda tag: _RANKED.index(family(tag)))
    if not _ANY.search(head):
        return None
    # A comment's signs stand between the words of a notice.
    words = re.sub(r"[\s*#/;%\"'!|-]+", " ", head).lower()
    return next((name for name, wanted in _NOTICES if wanted.search(words)), None)


def effective(declared: str, text: str) -> str:
    """The licence of a program: its header's where that is stricter than what the source declares."""
    found = detected(text)
    if found is None or _RANKED.index(family(found)) <= _RANKED.index(family(declared)):
        return declared
    return found


def policy_error(policy: Sequence[str]) -> str | None:
    """What is wrong with a policy's entries, in a sentence, or None."""
    for entry in policy:
        if entry.startswith("@") and entry[1:] not in FAMILIES:
            return f"there is no family {entry!r}: the families are {', '.join(f'@{name}' for name in FAMILIES)}"
        if not entry.strip():
            return "an entry is empty: remove it"
    return None if policy else "no licence is allowed: list at least one SPDX pattern or family, or '*' for any"


_RANKED = (*FAMILIES, "unknown")


def _passes(tree: _Tree, patterns: tuple[str, ...]) -> bool:
    if isinstance(tree, _Joined):
        wanted = all if tree.word == "AND" else any
        return wanted(_passes(side, patterns) for side in (tree.left, tree.right))
    return any(fnmatchcase(name, pattern) for name in _names(tree) for pattern in patterns)


def _names(one: _Simple) -> list[str]:
    """The spellings, in lower case, that a pattern may take: an exception only ever permits more."""
    name = one.name.lower()
    short = re.sub(r"-(?:only|or-later)$", "", name).removesuffix("+")
    return [name, f"{name} with {one.exception.lower()}" if one.exception else name, short]


def _rank(tree: _Tree) -> int:
    if isinstance(tree, _Joined):
        strictest = max if tree.word == "AND" else min
        return strictest(_rank(tree.left), _rank(tree.right))
    for at, patterns in enumerate(FAMILIES.values()):
        if any(fnmatchcase(name, pattern.lower()) for name in _names(tree) for pattern in patterns):
            return at
    return len(FAMILIES)


def _written(tree: _Tree, inner: bool = False) -> str:
    if isinstance(tree, _Simple):
        return f"{tree.name} WITH {tree.exception}" if tree.exception else tree.name
    text = f"{_written(tree.left, True)} {tree.word} {_written(tree.right, True)}"
    return f"({text})" if inner else text


def _read(licence: str) -> _Tree | None:
    """The expression as a tree; None where it is no SPDX expression and no known spelling of a licence."""
    text = " ".join(licence.split())
    if len(text) > EXPRESSION_CHARS or text.lower() in _UNKNOWN:
        return None
    tokens = _tokens(_alias(text) or _choice(text) or text)
    return _Parser(tokens).whole() if tokens else None


def _choice(text: str) -> str | None:
    """A choice as crates.io and CRAN write it, `MIT/Apache-2.0` and `GPL-2 | MIT + file LICENSE`; None where a side is
    no known spelling."""
    sides = [_alias(side) for side in re.split(r" ?[|/] ?", text)]
    return " OR ".join(f"({side})" for side in sides if side) if all(sides) else None


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return []
        found.append(match[1])
        at = match.end()
    return found


class _Parser:
    """SPDX 2.3, annex D: WITH binds closer than AND, AND closer than OR."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    def whole(self) -> _Tree | None:
        tree = self.choice()
        return tree if self.at == len(self.tokens) else None

    def choice(self) -> _Tree | None:
        return self.joined("OR", self.sum)

    def sum(self) -> _Tree | None:
        return self.joined("AND", self.term)

    def joined(self, word: str, part: Callable[[], _Tree | None]) -> _Tree | None:
        tree = part()
        while tree is not None and self.take(word):
            right = part()
            tree = _Joined(word, tree, right) if right is not None else None
        return tree

    def term(self) -> _Tree | None:
        if self.take("("):
            self.depth += 1
            tree = self.choice() if self.depth <= _DEPTH_MAX else None
            self.depth -= 1
            return tree if tree is not None and self.take(")") else None
        name = self.name()
        if name is None:
            return None
        if not self.take("WITH"):
            named = _alias(name) or name
            return _Parser(_tokens(named)).whole() if " " in named else _simple(named)
        exception = self.name()
        return None if exception is None else _Simple(_simple(_alias(name) or name).name, exception)

    def take(self, word: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].upper() == word:
            self.at += 1
            return True
        return False

    def name(self) -> str | None:
        if self.at == len(self.tokens):
            return None
        token = self.tokens[self.at]
        if token in "()" or token.upper() in ("AND", "OR", "WITH") or token.lower() in _UNKNOWN:
            return None
        self.at += 1
        return token


def _simple(name: str) -> _Simple:
    """An identifier in SPDX's spelling: GNU licences say `only` or `or-later`."""
    name = _SPELLING.get(name.lower(), name)
    gnu = re.fullmatch(r"((?:A|L)?GPL|GFDL)-(\d)(?:\.(\d))?(\+|-only|-or-later)?", name, re.IGNORECASE)
    if gnu:
        end = "or-later" if (gnu[4] or "").lower() in ("+", "-or-later") else "only"
        name = f"{gnu[1].upper()}-{gnu[2]}.{gnu[3] or 0}-{end}"
    return _Simple(name)


_SPELLING = {
    name.lower(): name
    for name in (
        "MIT Apache-2.0 BSD-2-Clause BSD-3-Clause BSD-4-Clause 0BSD ISC Zlib Unlicense CC0-1.0 MPL-2.0 MPL-1.1 PSF-2.0 "
        "EPL-1.0 EPL-2.0 BSL-1.0 WTFPL PostgreSQL Artistic-2.0 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 "
        "CC-BY-NC-4.0 CC-BY-ND-4.0 CC-BY-NC-SA-4.0 CC-BY-NC-ND-4.0 NCSA"
    ).split()
}
_ALIASES = {
    "apache software": "Apache-2.0",
    "apache": "Apache-2.0", "apache 2": "Apache-2.0", "apache2": "Apache-2.0", "apache license": "Apache-2.0",
    "asl 2.0": "Apache-2.0", "asl2": "Apache-2.0", "apl2": "Apache-2.0", "expat": "MIT", "x11": "X11", "mit/x11": "MIT",
    "mit x11": "MIT", "bsd": "BSD-3-Clause", "new bsd": "BSD-3-Clause", "modified bsd": "BSD-3-Clause",
    "revised bsd": "BSD-3-Clause", "simplified bsd": "BSD-2-Clause", "freebsd": "BSD-2-Clause", "bsd2": "BSD-2-Clause",
    "bsd3": "BSD-3-Clause", "original bsd": "BSD-4-Clause", "psf": "PSF-2.0", "python": "PSF-2.0",
    "python software foundation": "PSF-2.0", "psfl": "PSF-2.0", "mozilla public 2.0": "MPL-2.0", "mpl2": "MPL-2.0",
    "public domain": "LicenseRef-public-domain", "publicdomain": "LicenseRef-public-domain", "cc0": "CC0-1.0",
    "cc zero": "CC0-1.0", "cc0 1.0": "CC0-1.0",
    "cc0 1.0 universal": "CC0-1.0", "creative commons zero": "CC0-1.0", "boost": "BSL-1.0",
    "boost software 1.0": "BSL-1.0",
    "zlib/libpng": "Zlib", "artistic": "Artistic-1.0-Perl", "perl": "Artistic-1.0-Perl OR GPL-1.0-or-later",
    "the unlicense": "Unlicense", "eclipse public 2.0": "EPL-2.0", "eclipse public 1.0": "EPL-1.0",
    "all rights reserved": "LicenseRef-proprietary", "proprietary": "LicenseRef-proprietary",
    "commercial": "LicenseRef-proprietary", "copyright": "LicenseRef-proprietary",
}  # fmt: skip
_CC_URL = re.compile(
    r"(?:https?://)?(?:www\.)?creativecommons\.org/(licenses|publicdomain)/([a-z-]+)/([0-9.]+)(?:/\S*)?", re.I
)
# Other licences' own pages; the name where the address does not hold it.
_PAGES = tuple(
    (re.compile(rf"(?:https?://)?(?:www\.)?{address}(?:\.txt|\.html|\.php)?/?", re.I), name)
    for address, name in (
        (r"apache\.org/licenses/license-2\.0", "Apache-2.0"),
        (r"(?:opensource|spdx)\.org/licen[cs]es?/((?:[a-z0-9+-]|\.(?!txt|html|php))+)", ""),
        (r"gnu\.org/(?:licenses|copyleft)/(?:old-licenses/)?([al]?gpl-[23]\.[01])", ""),
    )
)
_CC_WORDS = re.compile(
    r"(?:cc|creative ?commons)[ -]*(attribution|by)"
    r"((?:[ -]*(?:non ?-?commercial|nc|share ?-?alike|sa|no ?-?deriv\w*|nd))*)"
    r"[ -]*v?([1-4]\.[05])?(?: (?:international|unported|generic))?",
    re.I,
)
_GNU_WORDS = re.compile(
    r"(?:gnu )?(?P<affero>affero |a)?(?P<lesser>lesser |library |l)?"
    r"(?:gpl|general public|(?P<free>g?fdl|free documentation))[ -]*v? ?(?P<major>[1-3])(?:\.(?P<minor>[0-3]))?"
    r"(?P<later>\+|[ -]?(?:only|or[ -](?:any )?(?:later|newer|above))(?: version)?)?",
    re.I,
)


def _alias(text: str) -> str | None:
    """The SPDX identifier, or the choice of two, that a common spelling means."""
    cc = _CC_URL.fullmatch(text)
    if cc:
        if cc[1].lower() == "publicdomain":
            return "CC0-1.0" if cc[2].lower() == "zero" else "CC-PDDC"
        return f"CC-{cc[2].upper()}-{cc[3].rstrip('.')}"
    for page, name in _PAGES:
        if address := page.fullmatch(text):
            return name or address[1]
    text = text.rpartition(" :: ")[2]  # PyPI's classifiers: `License :: OSI Approved :: MIT License`
    text = re.sub(r" ?\+ ?file LICEN[CS]E$", "", text)  # CRAN's `MIT + file LICENSE`, and `GPL (>= 2)`
    text = re.sub(r" ?\(>= ?([\d.]+)\)$", r" \1+", text)
    short = re.sub(r" ?\([^()]*\)$", "", text) or text  # `GNU General Public License v3 (GPLv3)`
    bare = re.sub(r"\b(?:the|licen[cs]ed?|version|clause|under)\b|,", " ", short.lower().replace("_", "-"))
    bare = " ".join(re.sub(r"\bv(?=\d)", "", bare).split()).strip(" .-")
    for words in (bare, bare.replace("-", " ")):
        if words in _ALIASES:
            return _ALIASES[words]
    if re.fullmatch(r"apache(?: software)?(?: foundation)?[ -]*2(?:\.0)?\+?", bare):
        return "Apache-2.0"
    clauses = re.fullmatch(r"(?:bsd[ -]*([234])|([234])[ -]+bsd)", bare)
    if clauses:
        return f"BSD-{clauses[1] or clauses[2]}-Clause"
    if (spelled := bare.replace(" ", "-")) in _SPELLING:
        return _SPELLING[spelled]
    words_cc = _CC_WORDS.fullmatch(bare)
    if words_cc:
        return _creative(words_cc[2].lower(), words_cc[3])
    gnu = _GNU_WORDS.fullmatch(bare)
    return _gnu(gnu) if gnu else None


def _creative(terms: str, version: str | None) -> str:
    """A Creative Commons identifier; one without a version is taken for the strictest, 4.0 with its terms."""
    marks = (("NC", r"\bnc\b|commercial"), ("SA", r"\bsa\b|share"), ("ND", r"\bnd\b|deriv"))
    parts = [mark for mark, words in marks if re.search(words, terms.replace("-", " "))]
    return "-".join(["CC-BY", *parts, version or "4.0"])


def _gnu(found: re.Match[str]) -> str:
    name = "GFDL" if found["free"] else f"{'A' if found['affero'] else 'L' if found['lesser'] else ''}GPL"
    later = found["later"] and "only" not in found["later"].lower()
    return f"{name}-{found['major']}.{found['minor'] or 0}-{'or-later' if later else 'only'}"


# What no expression has ends it: the end of a comment or string; a program that writes tags has none of its own there.
_TAG = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9(][A-Za-z0-9.+:() \t-]{1,199})")
_ANY = re.compile(r"licen[cs]e|permission|redistribution|public domain|all rights reserved|copyleft|proprietary", re.I)
_NOTICES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(words))
    for name, words in (
        ("AGPL-3.0-or-later", r"affero general public license.{0,200}?version 3.{0,80}?or.{0,40}?later"),
        ("AGPL-3.0-only", r"affero general public license.{0,200}?version 3|\bagplv?3\b"),
        ("LGPL-2.1-or-later", r"(?:lesser|library) general public license.{0,200}?version 2.{0,80}?or.{0,40}?later"),
        ("LGPL-3.0-or-later", r"lesser general public license.{0,200}?version 3.{0,80}?or.{0,40}?later"),
        ("LGPL-2.1-only", r"(?:lesser|library) general public license.{0,200}?version 2"),
        ("LGPL-3.0-only", r"lesser general public license.{0,200}?version 3"),
        ("GPL-2.0-or-later", r"gnu general public license.{0,200}?version 2.{0,80}?or.{0,40}?later"),
        ("GPL-3.0-or-later", r"gnu general public license.{0,200}?version 3.{0,80}?or.{0,40}?later"),
        ("GPL-2.0-only", r"gnu general public license.{0,200}?version 2"),
        ("GPL-3.0-only", r"gnu general public license.{0,200}?version 3"),
        ("GPL-2.0-or-later", r"(?:under|terms of) the (?:gnu )?(?:gpl|general public license)\b"),
        ("MPL-2.0", r"mozilla public license,? (?:v\.|version)? ?2\.0"),
        ("Apache-2.0", r"apache license,? version 2\.0|www\.apache\.org licenses license 2\.0"),
        ("EPL-2.0", r"eclipse public license (?:v\.? ?)?2\.0"),
        ("MIT", r"permission is hereby granted,? free of charge"),
        ("ISC", r"permission to use,? copy,? modify,? and(?: or)? distribute this software for any purpose"),
        ("BSD-4-Clause", r"redistribution and use in source and binary forms.{0,900}?advertising materials mentioning"),
        ("BSD-3-Clause", r"redistribution and use in source and binary forms.{0,900}?(?:neither the name|names? of)"),
        ("BSD-2-Clause", r"redistribution and use in source and binary forms"),
        ("LicenseRef-public-domain", r"(?:placed|dedicated|released|is) (?:in|into|to) the public domain"),
        ("LicenseRef-proprietary", r"proprietary and confidential|confidential and proprietary|unauthorized copying"),
    )
)
