"""Numbers that prove themselves: the checks that tell a card, an account or a person's number from any other digits."""

from __future__ import annotations

from datetime import date

# Lengths of an IBAN by country (ISO 13616 registry).
IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29,
    "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29,
    "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28,
    "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20,
    "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19,
    "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29,
    "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24,
    "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
    "YE": 30,
}  # fmt: skip
# Numbers that payment providers publish for tests: they belong to nobody.
TEST_CARDS = frozenset(
    (
        "4111111111111111 4242424242424242 4012888888881881 4000056655665556 4222222222222 5555555555554444 "
        "5105105105105100 5200828282828210 2223003122003222 378282246310005 371449635398431 378734493671000 "
        "6011111111111117 6011000990139424 30569309025904 38520000023237 3056930009020004 3530111333300000 "
        "3566002020360505 6200000000000005 5431111111111111 4000000000000002 4917610000000000"
    ).split()
)
# Provinces by the first two digits of a resident id (GB/T 2260).
_PROVINCES = frozenset(
    [*range(11, 16), *range(21, 24), *range(31, 38), *range(41, 47), *range(50, 55), *range(61, 66), 71, 81, 82, 83]
)
_RESIDENT_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def luhn(digits: str) -> bool:
    """Whether the last digit checks the others by Luhn's rule (ISO/IEC 7812-1)."""
    odd = sum(int(digit) for digit in digits[-1::-2])
    even = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (odd + even) % 10 == 0


def card(digits: str) -> bool:
    """Whether `digits` could be a payment card's number: an issuer's prefix with its length, Luhn, no test number."""
    return _issued(digits) and len(set(digits)) > 3 and luhn(digits) and digits not in TEST_CARDS


def _issued(digits: str) -> bool:
    """Whether an issuer of that prefix gives out numbers of that length (ISO/IEC 7812 ranges)."""
    length, two, four = len(digits), int(digits[:2]), int(digits[:4])
    if digits[0] == "4":
        return length in (13, 16, 19)
    if 51 <= two <= 55 or 2221 <= four <= 2720:
        return length == 16
    if two in (34, 37):
        return length == 15
    if four == 6011 or two == 65 or 644 <= four // 10 <= 649 or 3528 <= four <= 3589:
        return length in (16, 19)
    if two == 62:
        return 16 <= length <= 19
    return two in (36, 38, 39) and length == 14


def iban(compact: str) -> bool:
    """Whether `compact` (no spaces, capitals) is an IBAN: its country's length, and 1 modulo 97 (ISO 13616)."""
    if IBAN_LENGTHS.get(compact[:2]) != len(compact):
        return False
    return int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1


def resident(number: str) -> bool:
    """Whether `number` is a Chinese resident id (GB 11643): province, day of birth and ISO 7064 MOD 11-2."""
    if int(number[:2]) not in _PROVINCES:
        return False
    try:
        born = date(int(number[6:10]), int(number[10:12]), int(number[12:14]))
    except ValueError:
        return False
    total = sum(weight * int(digit) for weight, digit in zip(_RESIDENT_WEIGHTS, number, strict=False))
    return 1880 <= born.year <= 2100 and "10X98765432"[total % 11] == number[17].upper()
