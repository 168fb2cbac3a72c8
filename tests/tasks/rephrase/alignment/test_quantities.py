"""What is read as a quantity, and what is the same quantity written another way."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment import chinese
from tasks.rephrase.alignment.numbers import Known, numbers
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.quantities import quantities
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()

SAME = [
    ("1,234 users", "1234 users"),
    ("12,34,567 people", "1 234 567 people"),
    ("2.5 million tonnes", "2,500,000 t"),
    ("half a billion cells", "500 million cells"),
    ("thirteen hundred men", "1,300 men"),
    ("two dozen eggs", "24 eggs"),
    ("one hundred and five pages", "105 pages"),
    ("three hundred thousand lives", "300,000 lives"),
    ("the nineteenth century", "the 19th century"),
    ("the 17th century", "the 1600s"),
    ("between 10 and 20 kg", "10–20 kg"),
    ("from 2 to 3 million", "2 million to 3 million"),
    ("5 per cent of them", "5 % of them"),
    ("20% of them", "one in five of them"),
    ("one in a thousand", "0.1 %"),
    ("three quarters of it", "75 % of it"),
    ("2 September 1666", "September 2, 1666"),
    ("an hour and a half", "90 minutes"),
    ("two and a half years", "30 months"),
    ("20 years", "two decades"),
    ("at 2:30 pm", "at 14:30"),
    ("5 km", "5,000 metres"),
    ("30 °C", "30 degrees Celsius"),
    ("64 megabytes", "64 MB"),
    ("100 km/h", "100 kilometres per hour"),
    ("68,000 km²", "68,000 square kilometres"),
    ("−40 °C", "40 degrees below zero Celsius"),
    ("£1.2 million", "1.2 million pounds"),
    ("1.5 × 10^8 km", "150,000,000 km"),
    ("2014, and two years later", "2014, and in 2016"),
    ("a year or two", "one to two years"),
    ("every 30 minutes to every 10", "each 30 minutes to each 10 minutes"),
    ("sixteen bits", "a 16-bit word"),
    ("三百零五人", "305人"),
    ("两千万吨", "2000万吨"),
    ("百分之五", "5%"),
    ("三分之二", "2/3"),
    ("二十世纪七十年代", "20世纪70年代"),
    ("人口2100万", "21 million inhabitants"),
    ("1949年10月1日", "1 October 1949"),
    ("零下5摄氏度", "−5 °C"),
    ("每秒343米", "343 metres per second"),
    ("十六周岁", "16 years of age"),
    ("1.4亿公里", "140 million kilometres"),
    ("at 11.40 pm", "at 23:40"),
    ("in the seventies of the nineteenth century", "in the 1870s of the 19th century"),
    ("44 of them in 1978", "44 of them in '78"),
    ("¼ of it", "one quarter of it"),
    ("about 15 minutes", "about a quarter of an hour"),
    ("at least ten seconds", "10 seconds or longer"),
    ("a bottle and a half", "one and a half bottles"),
    ("half of them", "50 % of them"),
    ("nine out of ten of them", "90 % of them"),
    ("90 days", "three months"),
    ("over the last decade", "over the past ten years"),
    ("for the past year", "for the past twelve months"),
    ("about 65 days", "about nine weeks"),
    ("minus seven degrees", "−7 degrees"),
    ("by a third", "by 33 percent"),
    ("in the 1990s", "from 1990 to 1999"),
    ("35 million cubic metres", "35 million m3"),
    ("零度", "0℃"),
    ("12.8元", "12元8角"),
    ("72 times a second.", "72 times each second"),
    ("七日内", "一星期内"),
    ("两个半小时", "一百五十分钟"),
    ("每半个月", "每十五天"),
    ("万分之五", "0.05%"),
    ("四成八的青年", "48%的青年"),
    ("1960年代", "上世纪六十年代"),
    ("一米二以下", "120厘米以下"),
    ("二三十公里", "20至30公里"),
    ("three months' notice", "3 months' notice"),
    ("on 2021-12-25", "on 25 December 2021"),
    ("on 12/25/2021", "on the 25th of December 2021"),
    ("on 25.12.2021", "on Dec. 25, 2021"),
    ("2021年12月25日", "on 25 December 2021"),
    ("from 1914 to 1918", "1914-18"),
    ("from 3 to 8 March", "between 3 March and 8 March"),
    ("14 May and three days later", "17 May, three days after 14 May"),
    ("星期天", "周日"),
    ("at half past eight", "at 8:30"),
    ("at a quarter to seven", "at 6:45"),
    ("at 22:29", "at 10:29 p.m."),
    ("晚上九点十五分", "21:15"),
    ("上午八点半", "8:30"),
    ("他五点到家", "他17:00到家"),
    ("这三点前提", "这些前提"),
    ("2 hours 30 minutes", "150 minutes"),
    ("6 feet 2 inches", "188 cm"),
    ("4 pounds fifty", "£4.50"),
    ("4 dollars and 50 cents", "$4.50"),
    ("99 cents an hour", "$0.99"),
    ("¥320", "320 yen"),
    ("185 lb", "84 kg"),
    ("100 acres", "40.5 hectares"),
    ("10 gallons", "38 litres"),
    ("a quarter of a litre", "250 ml"),
    ("77 degrees Fahrenheit", "25 degrees Celsius"),
    ("300 K", "27 °C"),
    ("1 bar", "100 kPa"),
    ("30k copies", "thirty thousand copies"),
    ("50 basis points", "half a percentage point"),
    ("9.81 m/s²", "9.81 metres per second squared"),
    ("9.81 m/s²", "9.81 m s⁻²"),
    ("300 J/(kg·K)", "300 J kg⁻¹ K⁻¹"),
    ("a rate of 3 s⁻¹", "a rate of 3 s^-1"),
    ("between ten and thirteen hours", "from 10 to 13 hours"),
    ("1.5 × 10^8 km", r"$1.5 \times 10^8$ km"),
    ("零下五度", "-5℃"),
    ("三斤", "1.5公斤"),
    ("八五折", "85%"),
    ("廿一名", "21名"),
    ("十五六岁", "15到16岁"),
    (".5 mg", "0.5 mg"),
    ("500 mcg", "0.5 mg"),
    ("2 mM", "2 mmol/L"),
    ("三里", "1.5公里"),
    ("一米七五", "1.75米"),
    ("三五天", "三到五天"),
    ("晚上12点", "at 0:00"),
    ("每月", "monthly"),
    ("从9%升到13%", "从9%上升4个百分点"),
    ("five point five percent", "5.5 percent"),
    ("约三分之一", "三成三"),
    ("约千分之一", "一千件里一件"),
    ("2 1/2 cups", "two and a half cups"),
    ("9/10 of them", "9 of the 10"),
    (r"$3.0\times10^{8}\,\mathrm{m/s}$", r"$3.0 \times 10^5$ km/s"),
]

OTHER = [
    ("5 km", "5 m"),
    ("64 MB", "64 GB"),
    ("64 KB", "64 KiB"),
    ("4 million", "4 billion"),
    ("88 days", "88 hours"),
    ("90 minutes", "an hour and a quarter"),
    ("30 °C", "30 °F"),
    ("5 mg/L", "5 µg/L"),
    ("in 1958", "in 1985"),
    ("the 19th century", "the 18th century"),
    ("the 1990s", "the 1980s"),
    ("on 2010-05-01", "on 2010-05-01 and in 2019"),
    ("from 1914-20", "from 1914-20 and in 1929"),
    ("2014, and two years later", "2014, and in 2017"),
    ("2100万人", "2.1 million people"),
    ("1949年10月1日", "2 October 1949"),
    ("10月", "in September 1949"),
    ("百分之五", "15%"),
    ("−40 °C", "40 °C"),
    ("three quarters of it", "two thirds of it"),
    ("3.5 seconds", "3.6 seconds"),
    ("in the 1870s", "in the sixties"),
    ("90 days", "four months"),
    ("three months' notice", "3 years' notice"),
    ("half of them", "60 % of them"),
    ("on 2021-12-25", "on 25 November 2021"),
    ("on 3 March and 11 November", "on 8 March and 11 November"),
    ("from 14 March to 31 March", "from 14 March to 31 May"),
    ("before November 15", "before December 15"),
    ("on Tuesday", "on Thursday"),
    ("in 44 BC", "in AD 44"),
    ("公元前221年", "公元221年"),
    ("at 8 a.m.", "at 8 p.m."),
    ("店九点开门", "店十点开门"),
    ("上午八点", "下午八点"),
    ("at 22:29", "at 10:29 a.m."),
    ("星期三", "星期四"),
    ("十月一日", "十一月一日"),
    ("from 1914 to 1918", "1914-19"),
    ("in 2019", "in 2020"),
    ("9.81 m/s²", "9.81 metres per second"),
    ("9.81 m s⁻²", "9.81 m s⁻¹"),
    ("3 s⁻¹", "3 m⁻¹"),
    ("第三章讲1839至1842年", "第三章讲1839至1845年"),
    ("35 million m3", "35 million m2"),
    ("72 times a minute.", "72 times a second."),
    ("5 mg/L", "5 mg/kg"),
    ("1,000 kroner", "1,000 euros"),
    ("12 pence", "12 pounds"),
    ("185 lb", "185 kg"),
    ("25 °C", "75 °F"),
    ("10 MB", "10 Mb"),
    ("in the 16th and the first year", "in the 15th and the first year"),
    ("1/8", "one ninth"),
    ("3 to 5 days", "2 to 5 days"),
    ("nine out of ten of them", "95% of them"),
    ("三斤", "三公斤"),
    ("八折", "七折"),
    ("$30$ minutes", "$30$ hours"),
    (r"$5\,\text{kg}$", r"$5\,\text{g}$"),
    (r"$5\times10^{-7}$ m", r"$5\times10^{-7}$ g"),
    (".5 mg", "5 mg"),
    ("50 mg", "50 mcg"),
    ("5 ppm", "5 ppb"),
    ("5 µM", "5 mM"),
    ("三五天", "35天"),
    ("晚上12点", "at 12 p.m."),
    ("每月", "每天"),
    ("上升了3个百分点", "上升了3%"),
    ("one point three billion people", "three billion people"),
    ("三分之一", "十分之一"),
    ("千分之二", "百分之二"),
    ("2 1/2 cups", "3 1/2 cups"),
    ("9/10 of it", "4/10 of it"),
    ("1/4 cup", "1/2 cup"),
]


def passes(one: str, other: str) -> bool:
    return numbers(Pair(f"It was {one}.", f"There was {other}."), CONFIG).passed


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_written_another_way(one: str, other: str) -> None:
    assert passes(one, other)
    assert passes(other, one)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_number_or_unit_is_refused(one: str, other: str) -> None:
    verdict = numbers(Pair(f"It was {one}.", f"There was {other}."), CONFIG)
    assert not verdict.passed
    assert verdict.why


@given(st.integers(0, 10**8 - 1))
def test_chinese_numerals_are_read_as_written(number: int) -> None:
    assert chinese.value(_han(number)) == number


def _han(number: int) -> str:
    """A number below 10^8 in Chinese numerals, as schoolbooks write it."""
    if number < 10:
        return "零一二三四五六七八九"[number]
    for size, sign in ((10**4, "万"), (1000, "千"), (100, "百"), (10, "十")):
        if number >= size:
            above, rest = divmod(number, size)
            zero = "零" if rest and rest < size // 10 else ""
            return _han(above) + sign + (zero + _han(rest) if rest else "")
    raise AssertionError


@given(st.floats(0, 1e6, allow_nan=False).map(lambda value: f"{value:.3f}"))
def test_decimals(written: str) -> None:
    (quantity,) = quantities(f"x: {written} of them")
    assert quantity.value == Fraction(written)


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        "10^999999",
        "1e999",
        "1." * 400,
        "-" * 3000,
        "1 " * 3000,
        "一" * 3000,
        "$" * 999,
        "one " * 2000,
        "1-" * 2000,
        "8:30 " * 1500,
        "八点半" * 1500,
        "2 h 1 min 3 s " * 1000,
        "31 May, " * 1500,
        "1914-18 " * 1500,
        "from 3 to 5 " * 1000,
        "44 BC " * 1500,
    ],
)
def test_no_number_is_too_long(text: str) -> None:
    assert numbers(Pair(text, text), CONFIG).passed


def test_names_and_list_numbers_are_no_quantities() -> None:
    assert quantities("1. UTF-8 and B-52\n2) HTTP/2 has `5` of https://a.org/6") == ()


def test_a_unit_of_the_range_holds_for_both_ends() -> None:
    text = "from 10 to 20 kg"
    assert Known(text, quantities(text)).states(quantities("10 kg")[0], measured=True)
