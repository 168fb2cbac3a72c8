"""Personal data: what is somebody's is found, what only looks like it is left, in linear time and without harm."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.corpus.safety import checksums
from tasks.corpus.safety.addresses import public
from tasks.corpus.safety.config import PiiConfig
from tasks.corpus.safety.pii import Scrubber
from tasks.corpus.safety.scan import Scan
from tests.linear import assert_linear

SCRUBBER = Scrubber(PiiConfig())


def personal():
    """The labelled set beside this file."""
    spec = importlib.util.spec_from_file_location("personal_for_tests", Path(__file__).with_name("personal.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [1, 7])
def test_recall_and_precision_on_the_labelled_set(seed):
    made = personal()
    found, asked, wrong = Counter(), Counter(), []
    for kind, value, text in made.positives(seed, 40):
        scrubbed, counts = SCRUBBER.scrub(text)
        asked[kind] += 1
        if value not in scrubbed and counts.get(kind):
            found[kind] += 1
        else:
            wrong.append((kind, text, scrubbed))
    for kind in asked:
        assert found[kind] / asked[kind] >= 0.97, (kind, found[kind] / asked[kind], wrong[:5])
    texts = made.negatives(seed, 60)
    taken = [(text, counts) for text in texts if (counts := SCRUBBER.scrub(text)[1])]
    assert len(taken) <= 0.005 * len(texts), taken[:8]


def test_only_the_value_is_replaced_and_nothing_around_it():
    for kind, value, text in personal().positives(3, 10):
        scrubbed, counts = SCRUBBER.scrub(text)
        if counts == {kind: 1}:
            assert scrubbed == text.replace(value, f"<PII:{kind}>"), text


def test_the_same_value_has_the_same_number_where_that_is_asked():
    text = "a.b@acme.com wrote to c.d@acme.com, and A.B@acme.com answered from 66.249.66.1"
    scrubbed, counts = Scrubber(PiiConfig(consistent=True)).scrub(text)
    assert scrubbed == "<PII:EMAIL:1> wrote to <PII:EMAIL:2>, and <PII:EMAIL:1> answered from <PII:IP:1>"
    assert counts == {"EMAIL": 3, "IP": 1}


def test_kinds_that_are_not_asked_for_stay():
    assert Scrubber(PiiConfig(kinds=("IP",))).scrub("jane@acme.com 66.249.66.1")[0] == "jane@acme.com <PII:IP>"
    assert Scrubber(PiiConfig(kinds=())).scrub("jane@acme.com")[1] == {}


def test_a_program_can_still_be_parsed():
    code = (
        "MOBILE = 13812345678\n"
        "def call(number=13812345678, *, mail='jane@acme.com'):  # mobile 13812345678\n"
        "    return {'手机': 13912345678, \"phone\": \"+1 650-253-0000\", 'ip': '66.249.66.1'}\n"
        'password = "hunter2!Xyz"\n'
    )
    scrubbed, counts = SCRUBBER.scrub(code, code=True)
    ast.parse(scrubbed)
    assert scrubbed.count("\n") == code.count("\n")
    assert counts["EMAIL"] == counts["IP"] == counts["PASSWORD"] == 1
    assert 'MOBILE = "<PII:PHONE>"' in scrubbed


def test_a_private_key_loses_its_body_and_keeps_its_frame():
    body = "\n".join("MIIEpAIBAAKCAQEA7bq3Zz0vX9u8T2Q1" + str(number) * 8 for number in range(6))
    text = f"x\n-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\ny"
    assert SCRUBBER.scrub(text)[0] == (
        "x\n-----BEGIN RSA PRIVATE KEY-----\n<PII:KEY>\n-----END RSA PRIVATE KEY-----\ny"
    )


HOSTILE = (
    *("a@", "1", "1 ", "+1-", "eyJ", "-----BEGIN PRIVATE KEY-----", "password", "password=", 'token:"', ":", "1:2:"),
    *("@", "://a:", "a@a.", "AKIA", "sk-", "1-", "GB29 ", "eyJaaaaaaaaaa.", "phone 1 2 3 4 5 6 7 8 ", "((", "a.a"),
    *("1.", "密码：", "phone 12 34 56 78 9, ", "4539 1488 0343 6467 "),
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit):
    SCRUBBER.scrub(unit * 100)
    assert_linear(lambda size: SCRUBBER.scrub(unit * (size // len(unit))), 60_000)


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_what_was_scrubbed_stays_as_it_is(text):
    once, _ = SCRUBBER.scrub(text)
    again, counts = SCRUBBER.scrub(once)
    assert (again, counts) == (once, {})


@given(st.lists(st.sampled_from(["jane@acme.com", "66.249.66.1", " ", "x", "<PII:IP>", "4539 1488 0343 6467", "\n"])))
def test_spans_are_in_order_and_apart(parts):
    text = "".join(parts)
    spans = SCRUBBER.spans(text)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    scrubbed, counts = SCRUBBER.scrub(text)
    assert sum(counts.values()) == len(spans)
    assert len(re.findall(r"<PII:[A-Z]+(?::[0-9]+)?>", scrubbed)) == len(spans) + text.count("<PII:IP>")


def test_checksums():
    assert checksums.iban("GB29NWBK60161331926819")
    assert not checksums.iban("GB28NWBK60161331926819")
    assert checksums.luhn("79927398713")
    assert not checksums.luhn("79927398710")
    assert checksums.resident("11010519491231002X")
    assert not checksums.resident("110105194912310021")
    assert not checksums.card("4111111111111111")  # published for tests
    assert not checksums.resident("11010519491331002X")  # month 13
    assert [public(one) for one in ("66.249.66.1", "10.0.0.1", "2606:4700::1111", "fe80::1", "x", "1.2.3")] == [
        True, False, True, False, False, False,
    ]  # fmt: skip


def test_a_scan_finds_what_may_be_there_and_where_digits_are_dense():
    scan = Scan([b"AKIA", b"eyJ", b"password"])
    bits, dense = scan("中 AKIA x (650) 253-0000, 12 34 x 1234567".encode())
    assert bits & 1
    assert not bits & 2
    text = "中 AKIA x (650) 253-0000, 12 34 x 1234567"
    assert [text[begin:end] for begin, end in dense] == ["650) 253-0000", "1234567"]
    assert scan(b"") == (0, [])


def test_regions_are_checked_when_they_are_configured():
    with pytest.raises(ValidationError, match="'XX' is no region"):
        PiiConfig(regions=("XX",))


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("Schreib an müller@firma.de.", "Schreib an <PII:EMAIL>."),
        ("Mail jürgen.groß@bäckerei-weiß.de, bitte", "Mail <PII:EMAIL>, bitte"),
        ("почта: иван@почта.рф.", "почта: <PII:EMAIL>."),
        ("邮箱zhang.san@qq.com。", "邮箱<PII:EMAIL>。"),
        ("卡号 6222 0212 3456 7890 128。", "卡号 <PII:CARD>。"),
        ("card 4539 1488 0343 6467 124", "card <PII:CARD> 124"),
        ("IBAN RU0304452522540817810538091310419.", "IBAN <PII:IBAN>."),
        ("IBAN BI42 1000 0100 0100 0033 2045 181", "IBAN <PII:IBAN>"),
        ("Telefon: 089 6361234", "Telefon: <PII:PHONE>"),
        ("Fax: +33 (0)1 42 68 53 00", "Fax: <PII:PHONE>"),
        ("Tél : 00 33 1 42 68 53 00", "Tél : <PII:PHONE>"),
        ("Handy: 0151 23456789", "Handy: <PII:PHONE>"),
        ("Ph: 9876543210", "Ph: <PII:PHONE>"),
        ("मोबाइल: 98765 43210", "मोबाइल: <PII:PHONE>"),
        ("Tél. : 01 42 68 53 00", "Tél. : <PII:PHONE>"),
        ("Teléfono 91 540 95 00", "Teléfono <PII:PHONE>"),
        ("電話：02-23456789", "電話：<PII:PHONE>"),
        ("(电话：010-62751234)", "(电话：<PII:PHONE>)"),
        ("Jane (+1 650 253 0000), Joe (650-253-0001)", "Jane (<PII:PHONE>), Joe (<PII:PHONE>)"),
        ("((650) 253-0000)", "(<PII:PHONE>)"),
        ("redis://:Xk29fjq8sQ@cache.acme.com:6379", "redis://:<PII:PASSWORD>@cache.acme.com:6379"),
        ("DB_PASSWORD=h7Gkk2pQx9Zm", "DB_PASSWORD=<PII:PASSWORD>"),
        ('password = "x7kk2q"', 'password = "<PII:PASSWORD>"'),
        ("csrf_token = 'd41d8cd98f00b204e9800998ecf8427e'", "csrf_token = '<PII:KEY>'"),
    ],
)
def test_what_the_labelled_set_has_not(text, scrubbed):
    assert SCRUBBER.scrub(text)[0] == scrubbed


def test_a_private_key_that_is_cut_off_loses_what_there_is_of_it():
    lines = "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ" + letter * 14 for letter in "xyz")
    text = f"A key:\n-----BEGIN RSA PRIVATE KEY-----\n{lines}\n"
    assert SCRUBBER.scrub(text)[0] == "A key:\n-----BEGIN RSA PRIVATE KEY-----\n<PII:KEY>\n"
    assert SCRUBBER.scrub("It begins with -----BEGIN PRIVATE KEY----- and ends.")[1] == {}


def test_a_bracket_after_a_number_stays():
    assert SCRUBBER.scrub("def f(phone=13812345678): pass", code=True)[0] == 'def f(phone="<PII:PHONE>"): pass'


@pytest.mark.parametrize(
    "text",
    [
        "Mobile Safari/537.36 2023-11-05 10:22",
        "phone model 13 2023-10-11",
        "a hotline since 2010-2012",
        "Call us by 11/05/2023 10",
        "password = self.config.dbUser2",
        "password: userInput.value1,",
        "const token = this.store2.authValue;",
        "secret = Config.S3.keyName",
        "credentials=GoogleAuth2Provider",
    ],
)
def test_days_and_names_of_programs_stay(text):
    assert SCRUBBER.scrub(text) == (text, {})
