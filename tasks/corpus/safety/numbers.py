"""Numbers of persons: telephones, payment cards, bank accounts and resident ids.

Only where digits stand densely (see `scan`) are candidates built and proved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import phonenumbers

from tasks.corpus.safety import checksums
from tasks.corpus.safety.addresses import Span

_CARD = re.compile(
    r"(?<![0-9A-Za-z_.+\-])[2-6](?:[0-9]{12,18}|[0-9]{3}(?:[ -][0-9]{4}){3}(?P<more> [0-9]{3})?"
    r"|[0-9]{3}[ -][0-9]{6}[ -][0-9]{4,5})(?![0-9A-Za-z_]|[.\-][0-9])"
)
_RESIDENT = re.compile(r"(?<![0-9A-Za-z_.\-])[1-8][0-9]{16}[0-9Xx](?![0-9A-Za-z_])")
_IBAN = re.compile(
    r"(?<![0-9A-Za-z])[A-Z]{2}[0-9]{2}(?:[0-9A-Z]{11,30}|(?: [0-9A-Z]{4}){2,7}(?: [0-9A-Z]{1,3})?)(?![0-9A-Za-z])"
)
_PHONE = re.compile(r"(?<![0-9A-Za-z_.\-/+^])\(?\+?\(?[0-9](?:[ .\-/]?\(?[0-9]\)?){6,15}(?![0-9A-Za-z_]|[.\-/][0-9])")
_AMERICAN = re.compile(r"(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}-)[2-9][0-9]{2}-[0-9]{4}$")
_CHINESE_MOBILE = re.compile(r"1[3-9][0-9]([ -]?)[0-9]{4}\1[0-9]{4}$")
TRIES_MAX = 200
"""After so many numbers of a text that were none, only the first region is asked: each asking costs some 30 us."""
_HAN = re.compile("[\u4e00-\u9fff]")
_TELEPHONE = re.compile(
    r"(?:\bt[eé]l(?:[eé](?:ph|f)|\.|:|\b)|phone|\bfax|\bm[oó](?:bile?|vil)\b|\bcell(?:ular)?\b|\bcall(?: us| me)?\b|"
    r"\bcel[.:]|\bph[.:]|\bhandy\b|\bтел(?:\.|:|ефон|\b)|전화|휴대폰|연락처|هاتف|جوال|मोबाइल|फ़?ोन|"
    r"whatsapp|\bsms\b|\bhotline|\bdial\b|电话|手机|联系|传真|热线|致电|移动|微信|電話|手機|聯絡|傳真|熱線|携帯)[^\n]{0,24}$",
    re.IGNORECASE,
)
_CARDS = re.compile(
    r"\b(?:cards?|visa|master ?card|amex|american express|discover|credit|debit|pan|cc|unionpay)\b|card_?n|卡",
    re.IGNORECASE,
)
_OTHER_NUMBER = re.compile(r"(?:isbn|issn|doi|orcid|pmid|rfc|upc|ean|serial|arxiv)[-:=# \w]{0,12}$", re.IGNORECASE)
_BEFORE = 48
# What has the groups of a telephone and is a day, or some years.
_DAY = re.compile(
    r"(?<![0-9])(?:(?:19|20)[0-9]{2}([.\-/])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12][0-9]|3[01])"
    r"|(?:0?[1-9]|[12][0-9]|3[01])([.\-/])(?:0?[1-9]|[12][0-9]|3[01])\2(?:19|20)[0-9]{2}"
    r"|(?:19|20)[0-9]{2}[ \-/](?:19|20)[0-9]{2}(?:[ \-/](?:19|20)[0-9]{2})*$)(?![0-9])"
)
# Numbers that regulators keep for films and manuals: NANP 555-01xx, Ofcom's drama ranges.
_FICTION = re.compile(r"1?[2-9][0-9]{2}55501[0-9]{2}$|44(?:2079460|7700900|1632960|113496|1214960|1414960)[0-9]{3}$")


def numbers(text: str, dense: Iterable[tuple[int, int]], regions: tuple[str, ...]) -> Iterator[Span]:
    """Every number of a person in `text` where digits stand densely.

    A number without a country code is a telephone only where its form or the words before it say so, and only if
    it is valid in one of `regions`.
    """
    reached = tries = 0
    for start, end in dense:
        for found in _IBAN.finditer(text, max(reached, start - 13), min(len(text), end + 34)):
            span = _account(found)
            if span is not None:
                reached = span[1]
                yield span
        limit = min(len(text), end + 2)
        for found in _RESIDENT.finditer(text, start, limit):
            if checksums.resident(found[0]):
                yield found.start(), found.end(), "ID"
        if end - start >= 13:
            for found in _CARD.finditer(text, start, limit):
                stop = _card(text, found)
                if stop:
                    yield found.start(), stop, "CARD"
        for found in _PHONE.finditer(text, max(0, start - 3), limit):
            span = _telephone(text, found, regions if tries < TRIES_MAX else regions[:1])
            if span is not None:
                yield span
            tries += span is None


def _account(found: re.Match[str]) -> Span | None:
    compact = found[0].replace(" ", "")
    length = checksums.IBAN_LENGTHS.get(compact[:2], 0)
    # The last group may be the first word of what follows.
    if not length or len(compact) < length or not checksums.iban(compact[:length]):
        return None
    taken, at = 0, found.start()
    while taken < length:
        taken += found.string[at] != " "
        at += 1
    return found.start(), at, "IBAN"


def _card(text: str, found: re.Match[str]) -> int:
    """Where the card's number that begins at `found` ends, or 0 where there is none."""
    number = found[0]
    if found["more"] and not checksums.card(re.sub(r"[ -]", "", number)):
        number = number.removesuffix(found["more"])  # a number of 16 digits and its security code
    if not checksums.card(re.sub(r"[ -]", "", number)):
        return 0
    before = text[max(0, found.start() - _BEFORE) : found.start()]
    # One bare number in ten passes Luhn: groups as on a card, or words, must say that it is one.
    return found.start() + len(number) if " " in number or "-" in number or _CARDS.search(before) else 0


def _telephone(text: str, found: re.Match[str], regions: tuple[str, ...]) -> Span | None:
    """The telephone number that begins at `found`, without the brackets that it stands in."""
    number, start = found[0], found.start()
    if number.startswith("((") or (number[0] == "(" and number.find(")") in (-1, len(number) - 1)):
        number, start = number[1:], start + 1
    if number[-1] == ")" and number.count("(") < number.count(")"):
        number = number[:-1]
    before = text[max(0, found.start() - _BEFORE) : found.start()]
    # Telephones are written in groups: `1 2 3 4 5 6 7 8` is a row of figures. A country code brings two more with it:
    # `+33 (0)1 42 68 53 00`.
    groups_max = 8 if "+" in number[:3] or number.startswith("00") else 6
    if _OTHER_NUMBER.search(before) or len(re.findall(r"[0-9]+", number)) > groups_max:
        return None
    if "+" in number[:3]:
        # What follows a number may be digits too: `+44 20 7946 0018 2019`.
        for _ in range(4):
            if _valid(number, None):
                return start, start + len(number), "PHONE"
            shorter = number.rstrip("0123456789()").rstrip(" .-/(")
            if len(shorter) < 8:
                return None
            number = shorter
        return None
    bare = number.strip("()")
    if _AMERICAN.match(number):
        wanted: tuple[str, ...] = ("US",)
    elif _CHINESE_MOBILE.match(bare) and (not bare.isdigit() or _HAN.search(before) or _TELEPHONE.search(before)):
        wanted = ("CN",)
    elif _TELEPHONE.search(before) and not _DAY.search(number):
        wanted = regions
    else:
        return None
    valid = any(_valid(number, region) for region in wanted if region in regions)
    return (start, start + len(number), "PHONE") if valid else None


def _valid(number: str, region: str | None) -> bool:
    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return False
    full = f"{parsed.country_code}{parsed.national_number}"
    return phonenumbers.is_valid_number(parsed) and not _FICTION.match(full)
