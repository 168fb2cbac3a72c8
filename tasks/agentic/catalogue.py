"""The small tools, each a row: its names, its schema, what it does, how people ask for it, how the answer is said."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping

from tasks.agentic.tools import NUMBER, TEXT, Tool, ToolError
from training.rl.worlds.families.family import both, pair

CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "China": "Beijing",
    "Norway": "Oslo",
    "Chile": "Santiago",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Cuba": "Havana",
    "Iran": "Tehran",
    "Greece": "Athens",
    "Poland": "Warsaw",
    "Canada": "Ottawa",
    "Ghana": "Accra",
    "Austria": "Vienna",
    "India": "New Delhi",
    "Russia": "Moscow",
    "Korea": "Seoul",
}
_NOWHERE = ("Atlantis", "Utopia")
WORDS = (
    "banana",
    "letter",
    "window",
    "pepper",
    "summer",
    "yellow",
    "coffee",
    "little",
    "tomorrow",
    "balloon",
    "river",
)
_ITEMS = {"tea": 3, "rice": 2, "bread": 4, "milk": 1, "paper": 5, "salt": 1, "oil": 7, "soap": 2, "wine": 9, "fish": 8}
PEOPLE = ("Anna", "Ben", "David", "Eva", "Hugo", "Ivan", "Lee", "Mary", "Paul", "Tom", "Wang", "Zhou")
_ROOMS = ("kitchen", "office", "hall", "bath", "garden", "studio")
_WEATHER = ("sun", "rain", "snow", "wind", "fog")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _day(month: int, day: int) -> dt.date:
    try:
        return dt.date(2026, month, day)
    except ValueError as error:
        raise ToolError(f"day {day} of month {month}: {error}") from error


def _hour(hour: int) -> str:
    if not 0 <= hour < 24:
        raise ToolError(f"{hour} is no hour of a day")
    return "done"


def _known(table: Mapping[str, object], key: str) -> str:
    if key not in table:
        raise ToolError(f"nothing is known of {key}")
    return str(table[key])


def _divide(a: int, b: int) -> str:
    if b == 0 or a % b:
        raise ToolError(f"{a} / {b} is no whole number")
    return str(a // b)


def _draw_day(draw: random.Random) -> dict[str, int]:
    return {"month": draw.randint(1, 12), "day": draw.randint(1, 31)}


CATALOGUE: tuple[Tool, ...] = (
    Tool(
        ("math.add", "math.sum", "math.plus"),
        "Sum of two numbers",
        {"a": NUMBER, "b": NUMBER},
        lambda a, b: str(a + b),
        lambda draw: {"a": draw.randint(10, 99), "b": draw.randint(10, 99)},
        both(
            (
                "(add|join|put together) {a} and {b}",
                "(sum|total) {a} and {b} (up|)",
                "(find|tell me|show me|give me) {a} plus {b}",
            ),
            ("把{a}和{b}(相加|加起来)", "(算|求|算算|算出){a}加{b}"),
        ),
        pair("The sum is {result}.", "和是{result}。"),
    ),
    Tool(
        ("math.subtract", "math.minus", "math.difference"),
        "One number less another",
        {"a": NUMBER, "b": NUMBER},
        lambda a, b: str(a - b),
        lambda draw: {"a": draw.randint(10, 99), "b": draw.randint(10, 99)},
        both(
            (
                "(subtract|take|deduct) {b} from {a}",
                "(find|tell me|show me|give me) {a} minus {b}",
                "(work out|compute|get) {a} less {b}",
            ),
            ("从{a}(减去|减掉){b}", "(算|求|算算|算出){a}减{b}"),
        ),
        pair("That leaves {result}.", "还剩{result}。"),
    ),
    Tool(
        ("math.multiply", "math.times", "math.product"),
        "Product of two numbers",
        {"a": NUMBER, "b": NUMBER},
        lambda a, b: str(a * b),
        lambda draw: {"a": draw.randint(2, 99), "b": draw.randint(2, 99)},
        both(
            (
                "(multiply|scale) {a} by {b}",
                "(find|tell me|show me|give me) {a} times {b}",
                "(work out|compute|get) the product of {a} and {b}",
            ),
            ("把{a}乘以{b}", "(算|求|算算|算出){a}乘{b}", "(算|求|算算|算出){a}与{b}的积"),
        ),
        pair("The product is {result}.", "积是{result}。"),
        split="test",
    ),
    Tool(
        ("math.divide", "math.quotient", "math.over"),
        "One number divided by another",
        {"a": NUMBER, "b": NUMBER},
        _divide,
        lambda draw: {"a": (b := draw.randint(0, 12)) * draw.randint(2, 60) + draw.choice((0, 0, 0, 1)), "b": b},
        both(
            (
                "divide {a} by {b}",
                "(find|tell me|show me|give me) {a} over {b}",
                "(split|share|deal) {a} among {b} people",
            ),
            ("把{a}除以{b}", "(算|求|算算|算出){a}除以{b}", "把{a}(分给|分成){b}份"),
        ),
        pair("The quotient is {result}.", "商是{result}。"),
    ),
    Tool(
        ("clock.timer", "clock.countdown", "clock.set_timer"),
        "Start a timer",
        {"minutes": NUMBER},
        lambda minutes: "done",
        lambda draw: {"minutes": draw.randint(2, 99)},
        both(
            (
                "(set|start|run) a (timer|countdown) for {minutes} minutes",
                "(remind|tell) me in {minutes} minutes",
                "count {minutes} minutes down",
            ),
            ("(设|定)一个{minutes}分钟的(计时|倒计时)", "{minutes}分钟后(提醒|叫)我"),
        ),
        pair("Your timer runs for {minutes} minutes.", "已开始计时{minutes}分钟。"),
    ),
    Tool(
        ("clock.alarm", "clock.wake", "clock.set_alarm"),
        "Wake somebody up",
        {"hour": NUMBER},
        _hour,
        lambda draw: {"hour": draw.randint(0, 24)},
        both(
            (
                "(wake|get) me (up|) at {hour}",
                "(set|put|make) (an|the) alarm for {hour} hours",
                "(ring|rouse) me at {hour} hours",
            ),
            ("{hour}点(叫醒我|叫我起来)", "(设|定)一个{hour}点的(闹钟|闹铃)"),
        ),
        pair("I will wake you at {hour}.", "我会在{hour}点叫你。"),
    ),
    Tool(
        ("media.volume", "media.sound", "media.set_volume"),
        "Loudness from 0 to 100",
        {"level": NUMBER},
        lambda level: "done",
        lambda draw: {"level": draw.randint(0, 99)},
        both(
            (
                "(set|turn|bring) the (volume|sound) to {level}",
                "make it {level} percent loud",
                "(play|keep) it at volume {level}",
            ),
            ("把音量(调到|设为){level}", "(声音|音量)(开到|改成){level}"),
        ),
        pair("The volume is {level} now.", "音量现在是{level}。"),
    ),
    Tool(
        ("media.channel", "media.station", "media.set_channel"),
        "Switch the television",
        {"number": NUMBER},
        lambda number: "done",
        lambda draw: {"number": draw.randint(1, 99)},
        both(
            (
                "(switch|go|change|turn) to channel {number}",
                "(put on|show|start) channel {number}",
                "let me (see|watch) channel {number}",
            ),
            ("(换到|切到|转到){number}频道", "(看|打开){number}频道", "把电视调到{number}"),
        ),
        pair("This is channel {number}.", "这是{number}频道。"),
    ),
    Tool(
        ("media.page", "media.open_page", "media.turn_to"),
        "Open a page",
        {"number": NUMBER},
        lambda number: "done",
        lambda draw: {"number": draw.randint(1, 200)},
        both(
            (
                "(open|show|fetch) (me|) page {number}",
                "(turn|go|jump) to page {number}",
                "(read|print|copy) page {number}",
            ),
            ("(打开|翻到|找到)第{number}页", "(看|读)第{number}页", "把书翻到{number}页"),
        ),
        pair("Page {number} is open.", "第{number}页已打开。"),
    ),
    Tool(
        ("travel.bus", "travel.bus_times", "travel.next_bus"),
        "When a bus leaves",
        {"line": NUMBER},
        lambda line: f"{6 + line % 17}:{line * 7 % 60:02}",
        lambda draw: {"line": draw.randint(1, 99)},
        both(
            (
                "(tell me|find out|say) when bus {line} (leaves|goes|departs)",
                "(check|look up|query) bus {line}",
                "(get|find) me the next bus {line}",
            ),
            ("(查|看|查看)一下{line}路(公交|巴士)(|什么时候来)", "告诉我{line}路车几点开"),
        ),
        pair("Bus {line} leaves at {result}.", "{line}路{result}开车。"),
    ),
    Tool(
        ("travel.gate", "travel.flight_gate", "travel.find_gate"),
        "Gate of a flight",
        {"flight": NUMBER},
        lambda flight: f"{'ABCD'[flight % 4]}{flight % 37 + 1}",
        lambda draw: {"flight": draw.randint(100, 999)},
        both(
            (
                "(find|tell me|look up|get) the gate of flight {flight}",
                "(check|see|say) where flight {flight} (boards|leaves)",
            ),
            ("(查|找)航班{flight}的登机口", "告诉我航班{flight}在哪里(登机|上)"),
        ),
        pair("Flight {flight} boards at {result}.", "航班{flight}在{result}登机。"),
        split="development",
    ),
    Tool(
        ("math.kilometres", "math.to_metres", "math.in_metres"),
        "Kilometres in metres",
        {"km": NUMBER},
        lambda km: f"{1000 * km} m",
        lambda draw: {"km": draw.randint(1, 99)},
        both(
            (
                "(convert|turn|change|bring) {km} km (to|into) metres",
                "(say|write|give) {km} km in metres",
                "(find|tell me|show me|give me) how many metres {km} km are",
            ),
            ("把{km}公里(换成|化成)米", "(算|看){km}公里是多少米"),
        ),
        pair("That is {result}.", "就是{result}。"),
    ),
    Tool(
        ("dates.weekday", "dates.day_of_week", "dates.which_day"),
        "Day of the week of a date in 2026",
        {"month": NUMBER, "day": NUMBER},
        lambda month, day: _DAYS[_day(month, day).weekday()],
        _draw_day,
        both(
            (
                "(tell me|find|say|name) the weekday of day {day} in month {month}",
                "(check|look up|see) which weekday day {day} of month {month} (is|was)",
            ),
            ("(查|看|算)一下{month}月{day}日是星期几", "告诉我{month}月{day}日是(周几|礼拜几)"),
        ),
        pair("It is a {result}.", "是{result}。"),
    ),
    Tool(
        ("dates.days_left", "dates.rest_of_year", "dates.until_new_year"),
        "Days from a date in 2026 to the end of that year",
        {"month": NUMBER, "day": NUMBER},
        lambda month, day: str((dt.date(2026, 12, 31) - _day(month, day)).days),
        _draw_day,
        both(
            (
                "(tell me|find|say) how many days are left after day {day} of month {month}",
                "count the days from day {day} of month {month} to the end of the year",
            ),
            ("(算|求|查)一下{month}月{day}日以后还剩几天", "告诉我{month}月{day}日到年底(还有|剩下)几天"),
        ),
        pair("There are {result} days left.", "还剩{result}天。"),
        split="test",
    ),
    Tool(
        ("clock.later", "clock.add_hours", "clock.hour_after"),
        "The hour some hours later",
        {"hour": NUMBER, "hours": NUMBER},
        lambda hour, hours: str((hour + hours) % 24) if _hour(hour) else "",
        lambda draw: {"hour": draw.randint(0, 24), "hours": draw.randint(2, 60)},
        both(
            (
                "(add|count|put) {hours} hours (to|from) {hour}",
                "(find|tell me|say) what hour it is {hours} hours after {hour}",
            ),
            ("(算|求|算算|算出){hour}点过{hours}小时是几点", "给{hour}点加{hours}小时"),
        ),
        pair("It will be {result}.", "将是{result}点。"),
    ),
    Tool(
        ("geo.capital", "geo.capital_of", "geo.main_city"),
        "Capital of a country",
        {"country": TEXT},
        lambda country: _known(CAPITALS, country),
        lambda draw: {"country": draw.choice([*CAPITALS, *_NOWHERE])},
        both(
            (
                "(name|say|tell me|give) the capital of {country}",
                "(look up|find) the capital of {country}",
                "(tell me|say) which city rules {country}",
            ),
            ("(说出|告诉我|查){country}的首都", "(查|看|查看){country}的首都是哪里"),
        ),
        pair("The capital is {result}.", "首都是{result}。"),
    ),
    Tool(
        ("geo.weather", "geo.forecast", "geo.get_weather"),
        "Weather of a city",
        {"city": TEXT},
        lambda city: _WEATHER[sum(map(ord, city)) % len(_WEATHER)],
        lambda draw: {"city": draw.choice(sorted(CAPITALS.values()))},
        both(
            (
                "(tell me|check|look up|find) the weather in {city}",
                "(give|get) me the forecast for {city}",
                "(see|check|tell me) if it rains in {city}",
            ),
            ("(查|看|说|问)一下{city}的天气", "告诉我{city}(天气怎么样|下不下雨)"),
        ),
        pair("There is {result} in {city}.", "{city}现在{result}。"),
    ),
    Tool(
        ("text.count_letter", "text.letters", "text.how_many"),
        "Count a letter in a word",
        {"word": TEXT, "letter": TEXT},
        lambda word, letter: str(word.count(letter)),
        lambda draw: {"word": (word := draw.choice(WORDS)), "letter": draw.choice(word)},
        both(
            ("(count|find|number) the letter {letter} in {word}", "(tell me|say|find) how many {letter} are in {word}"),
            ("(数|查)一下{word}里有几个{letter}", "告诉我{word}中{letter}的个数"),
        ),
        pair("There are {result}.", "有{result}个。"),
        split="development",
    ),
    Tool(
        ("shop.price", "shop.cost", "shop.get_price"),
        "Price of goods",
        {"item": TEXT, "count": NUMBER},
        lambda item, count: str(int(_known(_ITEMS, item)) * count),
        lambda draw: {"item": draw.choice([*_ITEMS]), "count": draw.randint(2, 60)},
        both(
            ("(tell me|look up|check) the price of {count} {item}", "(say|find out) what {count} {item} (cost|costs)"),
            ("(查|看|问)一下{count}份{item}(的价格|要多少钱)", "告诉我{count}份{item}多少钱"),
        ),
        pair("That costs {result} euros.", "一共{result}欧元。"),
    ),
    Tool(
        ("shop.order", "shop.buy", "shop.place_order"),
        "Order goods",
        {"item": TEXT, "count": NUMBER},
        lambda item, count: _known(_ITEMS, item) and "done",
        lambda draw: {"item": draw.choice([*_ITEMS, "gold"]), "count": draw.randint(2, 60)},
        both(
            (
                "(order|buy|get me|purchase) {count} {item}",
                "(send|bring|fetch) (me|us) {count} {item}",
                "(put|add) {count} {item} to my order",
            ),
            ("(订|买|要|来|拿){count}份{item}", "(送|来){count}份{item}", "把{count}份{item}加进订单"),
        ),
        pair("I ordered {count} {item}.", "已订{count}份{item}。"),
    ),
    Tool(
        ("home.light", "home.lamp", "home.set_light"),
        "Brightness of a room, 0 to 100",
        {"room": TEXT, "level": NUMBER},
        lambda room, level: "done",
        lambda draw: {"room": draw.choice(_ROOMS), "level": draw.randint(0, 99)},
        both(
            (
                "(set|dim|turn|bring) the light in the {room} to {level}",
                "(make|keep|hold) the {room} {level} percent bright",
                "(put|bring|turn) the {room} lamp to {level}",
            ),
            ("把{room}的灯(调到|设为){level}", "{room}的亮度(改成|调成){level}"),
        ),
        pair("The light in the {room} is at {level}.", "{room}的灯是{level}。"),
    ),
    Tool(
        ("home.heat", "home.heating", "home.set_heat"),
        "Warmth of a room in degrees",
        {"room": TEXT, "degrees": NUMBER},
        lambda room, degrees: "done",
        lambda draw: {"room": draw.choice(_ROOMS), "degrees": draw.randint(10, 30)},
        both(
            (
                "(heat|warm|cool|bring) the {room} to {degrees} degrees",
                "(set|keep|hold|leave) the {room} at {degrees} degrees",
            ),
            ("把{room}(加热|升温|降温|调)到{degrees}度", "让{room}保持{degrees}度"),
        ),
        pair("The {room} will have {degrees} degrees.", "{room}将是{degrees}度。"),
        split="test",
    ),
    Tool(
        ("people.call", "people.phone", "people.dial"),
        "Telephone a person",
        {"person": TEXT},
        lambda person: "done",
        lambda draw: {"person": draw.choice(PEOPLE)},
        both(
            (
                "(call|phone|ring|dial) {person}",
                "(get|put) {person} on the phone",
                "give {person} a (call|ring)",
            ),
            ("(打电话给|呼叫|拨打|联系){person}", "给{person}(打个电话|去个电话)"),
        ),
        pair("I am calling {person}.", "正在呼叫{person}。"),
    ),
    Tool(
        ("people.pay", "people.send_money", "people.transfer"),
        "Pay a person some euros",
        {"person": TEXT, "amount": NUMBER},
        lambda person, amount: "done",
        lambda draw: {"person": draw.choice(PEOPLE), "amount": draw.randint(1, 99)},
        both(
            (
                "(pay|send|give|wire) {person} {amount} euros",
                "(transfer|move|send) {amount} euros to {person}",
                "let {person} have {amount} euros",
            ),
            ("(付|转|给){person}{amount}欧元", "把{amount}欧元(转给|付给|汇给){person}"),
        ),
        pair("{person} got {amount} euros.", "已付给{person}{amount}欧元。"),
    ),
    Tool(
        ("travel.taxi", "travel.cab", "travel.book_taxi"),
        "Order a taxi",
        {"person": TEXT, "hour": NUMBER},
        lambda person, hour: _hour(hour),
        lambda draw: {"person": draw.choice(PEOPLE), "hour": draw.randint(0, 24)},
        both(
            (
                "(book|order|get|call) a (taxi|cab) for {person} at {hour}",
                "(send|bring) {person} a taxi at {hour}",
            ),
            ("{hour}点给{person}(叫|订)一辆(出租车|车)", "为{person}(预订|安排){hour}点的出租车"),
        ),
        pair("The taxi for {person} comes at {hour}.", "{person}的出租车{hour}点到。"),
    ),
    Tool(
        ("shop.table", "shop.book_table", "shop.reserve"),
        "Book a table",
        {"hour": NUMBER, "people": NUMBER},
        lambda hour, people: _hour(hour),
        lambda draw: {"hour": draw.randint(0, 24), "people": draw.randint(2, 60)},
        both(
            (
                "(book|reserve|get|hold) a table for {people} people at {hour}",
                "(find|get) us {people} seats at {hour}",
                "we are {people} people: (reserve|book) {hour} hours",
            ),
            ("(订|预订){hour}点{people}个人的(桌子|位子)", "{hour}点(留|订)一张{people}人的桌"),
        ),
        pair("Your table for {people} is booked at {hour}.", "已订{hour}点的{people}人桌。"),
    ),
)
BY_NAME: Mapping[str, Tool] = {name: tool for tool in CATALOGUE for name in tool.names}
"""Every name that a declaration may use, with the tool behind it."""
