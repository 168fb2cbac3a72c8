"""A labelled set for the scrubber, drawn by seed: values with valid checksums in the sentences and programs that they
stand in, and what looks like them and is nobody's."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

from tasks.corpus.safety.checksums import IBAN_LENGTHS

ALNUM = string.ascii_letters + string.digits
Draw = Callable[[random.Random], str]


def text_of(pick: random.Random, count: int, signs: str = ALNUM) -> str:
    return "".join(pick.choices(signs, k=count))


def email(pick: random.Random) -> str:
    first, last = pick.choice("anna jan li maria omar".split()), pick.choice("smith-jones novak wei garcia".split())
    local = pick.choice([f"{first}.{last}", f"{first[0]}{last}", f"{first}+{pick.randrange(99)}", f"{first}_{last}"])
    host = pick.choice("acme-tools.com mail.tu-wien.ac.at corp.cn gmail.com startup.io sub.dept.uni.edu".split())
    return f"{local}@{host}"


def ipv4(pick: random.Random) -> str:
    first, last = pick.choice([23, 45, 66, 81, 93, 141, 188, 207]), pick.randrange(33, 255)
    return f"{first}.{pick.randrange(256)}.{pick.randrange(256)}.{last}"


def ipv6(pick: random.Random) -> str:
    second, third, last = (f"{pick.randrange(1, 9999):x}" for _ in range(3))
    return f"2a0{pick.randrange(1, 9)}:{second}:{third}::{last}"


def phone(pick: random.Random) -> str:
    four = f"{pick.randrange(10_000):04}"
    american = f"{pick.choice([212, 415, 650, 312])}-{pick.choice([253, 334, 736])}-{four}"
    return pick.choice(
        [
            american,
            f"({american[:3]}) {american[4:]}",
            f"+1 {american}",
            f"+44 20 7{pick.randrange(100, 900)} {pick.randrange(1000, 9999)}",
            f"+49 30 {pick.randrange(200_000, 999_999)}",
            f"+86 138 {pick.randrange(1000, 9999)} {four}",
            f"+33 1 4{pick.randrange(0, 10)} {pick.randrange(10, 99)} {four[:2]} {four[2:]}",
        ]
    )


def mobile(pick: random.Random) -> str:
    return f"13{pick.randrange(4, 10)}{pick.randrange(10**8):08}"


def luhn_closed(digits: str) -> str:
    total = sum(sum(divmod(int(d) * (2 - at % 2), 10)) for at, d in enumerate(reversed(digits)))
    return f"{digits}{-total % 10}"


def card(pick: random.Random) -> str:
    digits = luhn_closed(pick.choice(["4539", "5412", "6011"]) + text_of(pick, 11, string.digits))
    return " ".join(digits[at : at + 4] for at in range(0, 16, 4))


def iban(pick: random.Random) -> str:
    country = pick.choice(["DE", "GB", "FR", "NL", "ES"])
    body = {"GB": "NWBK", "NL": "ABNA"}.get(country, "")
    body += text_of(pick, IBAN_LENGTHS[country] - 4 - len(body), string.digits)
    check = 98 - int("".join(str(int(sign, 36)) for sign in f"{body}{country}00")) % 97
    whole = f"{country}{check:02}{body}"
    return pick.choice([whole, " ".join(whole[at : at + 4] for at in range(0, len(whole), 4))])


def resident(pick: random.Random) -> str:
    body = f"{pick.choice([110105, 310115, 440305])}{pick.randrange(1950, 2010)}{pick.randrange(1, 13):02}"
    body += f"{pick.randrange(1, 29):02}{pick.randrange(1000):03}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return body + "10X98765432"[sum(w * int(d) for w, d in zip(weights, body, strict=True)) % 11]


def key(pick: random.Random) -> str:
    kind = pick.randrange(12)
    if kind == 11:
        parts = (json.dumps({"alg": "HS256"}), json.dumps({"sub": text_of(pick, 9), "iat": pick.randrange(10**9)}))
        head, body = (base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
        return f"{head}.{body}.{text_of(pick, 43)}"
    return (
        "AKIA" + text_of(pick, 16, string.ascii_uppercase + "234567"),
        "ghp_" + text_of(pick, 36),
        "github_pat_" + text_of(pick, 22) + "_" + text_of(pick, 59),
        "glpat-" + text_of(pick, 20),
        f"xoxb-{pick.randrange(10**11, 10**12)}-{text_of(pick, 24)}",
        "AIza" + text_of(pick, 35),
        "sk_live_" + text_of(pick, 24),
        "sk-proj-" + text_of(pick, 48),
        "npm_" + text_of(pick, 36),
        "pypi-AgEIcHlwaS5vcmc" + text_of(pick, 120),
        "hf_" + text_of(pick, 34, string.ascii_letters),
    )[kind]


def password(pick: random.Random) -> str:
    signs = ALNUM + "!@#%^&*-_"
    return text_of(pick, 3, string.ascii_letters) + text_of(pick, 8, signs) + str(pick.randrange(100, 999)) + "!k"


CARRIERS: tuple[tuple[str, Draw, tuple[str, ...]], ...] = (
    (
        "EMAIL",
        email,
        ("Write to {} for help.", "# Author: Anna <{}>", "联系邮箱：{}。", '"mail": "{}",', "mailto:{}?x=y"),
    ),
    (
        "IP",
        ipv4,
        ("Connection from {} port 22", 'HOST = "{}"', "http://{}:8080/a", "服务器地址为{}。", "{} - - [GET /]"),
    ),
    ("IP", ipv6, ("ping6 {}", "listen [{}]:443", 'addr = "{}"')),
    ("PHONE", phone, ("Call {} today.", "Tel: {}", "contact = '{}'  # office", "fax {}; mail follows")),
    ("PHONE", mobile, ("手机号码{}，请拨打。", "电话：{}", "phone: {}")),
    ("CARD", card, ("Card {} expires soon.", "卡号 {}。", 'pan = "{}"')),
    ("IBAN", iban, ("Pay to {} please.", "IBAN: {}", 'account = "{}"')),
    ("ID", resident, ("身份证号{}。", "resident id {}", 'sfz = "{}"')),
    ("KEY", key, ("export TOKEN={}", 'client = Client("{}")', "Authorization: Bearer {}", "the key is {} .")),
    ("PASSWORD", password, ('password = "{}"', "DB_PASSWORD: '{}'", '"passwd": "{}",')),
)


def positives(seed: int, each: int) -> list[tuple[str, str, str]]:
    """(kind, value, text that holds it) for every carrier sentence, `each` times."""
    pick = random.Random(seed)
    return [
        (kind, value := draw(pick), carrier.replace("{}", value))
        for kind, draw, carriers in CARRIERS
        for carrier in carriers
        for _ in range(each)
    ]


def negatives(seed: int, each: int) -> list[str]:
    """Texts that hold nothing of anybody's."""
    pick = random.Random(seed)
    number = pick.randrange

    def h(count: int) -> str:
        return text_of(pick, count, "0123456789abcdef")

    drawn = [
        text
        for _ in range(each)
        for text in (
            f"Version {number(9)}.{number(30)}.{number(99)}.{number(99)} was released.",
            f"version 10.{number(256)}.{number(256)}.{number(256)} fixes it",
            f"commit {h(40)}",
            f"sha256:{h(64)}",
            f"uuid {h(8)}-{h(4)}-4{h(3)}-a{h(3)}-{h(12)}",
            f"md5 = '{h(32)}'",
            f"between 19{number(10, 99)}-0{number(1, 9)}-1{number(9)} and 20{number(10, 99)}-12-2{number(9)}",
            f"see section {number(1, 9)}.{number(1, 9)}.{number(1, 9)}.{number(1, 20)} below",
            f"192.168.{number(256)}.{number(256)} and 10.{number(256)}.0.1 and 172.16.{number(256)}.9",
            f"x = [{', '.join(str(number(10**6)) for _ in range(8))}]",
            f"pi is 3.14159265358979 and e^{number(100)} is {number(10**9)}.{number(10**9)}",
            f"{number(10**15, 10**16)} * {number(10**10)} = {number(10**18)}",
            f"user{number(9)}@example.com wrote to admin@example.org",
            f"@decorator{number(9)}\ndef f(a, b): return a@b.T",
            f"ISBN 978-0-13-{number(100000, 999999)}-{number(10)}",
            f"float32 {number(1000)}.{number(10**7)} {number(1000)}.{number(10**7)} {number(1000)}.{number(10**7)}",
            f"time 12:{number(10, 60)}:{number(10, 60)} and ratio {number(9)}:{number(9)}:{number(9)}",
            f"std::vector::face{number(9)} and ::add and a::b::c{number(9)}",
            f"00:1a:2b:{number(10, 99)}:4d:5e",
            f"run task-{number(100)} on disk-sk-{number(10)}",
            f"0x{h(16)} and {h(24)}",
        )
    ]
    return [
        *drawn,
        "git clone git@github.com:owner/repo.git",
        "127.0.0.1 localhost; bind 0.0.0.0; mask 255.255.255.0; 203.0.113.9 and 198.51.100.1; 2001:db8::1 and fe80::1",
        "nameserver 8.8.8.8",
        "image@2x.png and icon@3x.jpg, react@18.2.0",
        'password = "password"; token = "your-token-here"; secret = "<SECRET>"; api_key = os.environ["API_KEY"]',
        "password = get_password(user)\npassword: str\nPASSWORD_MIN_LENGTH = 12\ntoken = tokenizer.next_token()",
        "The secret: a token is a word. Key: value pairs. passwords must be long.",
        "4111 1111 1111 1111 is a test number; so is 5555-5555-5555-4444",
        "(212) 555-0143 is a number of films",
        "RFC 1234, port 8080, year 1999-2024, page 100-110",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        "Usage: mail [-s <SUBJECT>] <EMAIL>",
        "http://localhost:5432/db and postgres://user:password@localhost/db",
    ]
