"""Each kind of suite against replies whose worth is known, and the unbiased estimate against counting."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from pydantic import ValidationError

from model.dialogue import tool_result
from model.engines.engine import Completion
from model.engines.openai import REFUSALS_IN_A_ROW, OpenAI
from model.reply import ParseError, Reply, ToolCall
from tasks.corpus.unavailable import UnavailableError
from tasks.evaluate.suites import answer, calls, choice, code, needle, played, refusal, sets
from tasks.evaluate.suites.config import Answer, Calls, Choice, Code, MultiTurn, Needle, Played, Refusals
from tasks.evaluate.suites.item import Item, Unmeasurable, drawn
from tasks.evaluate.suites.subject import Ask, Endpoint, Likelihood, reply_of
from tests.model.engines.test_openai import reply as respond
from tests.model.engines.test_openai import serving
from training.rl.environments.apis import problem_of
from training.rl.environments.table import environment
from training.rl.sandbox.config import SandboxUnavailable
from training.rl.sandbox.sandbox import Sandbox


class Parrot:
    """Gives the replies it was given, in order, and keeps what it was asked."""

    def __init__(self, *replies: Reply | str | None) -> None:
        self.given = [Reply(one) if isinstance(one, str) else one for one in replies]
        self.asked: list = []

    def replies(self, asks):
        self.asked = list(asks)
        left = iter(self.given)
        return [None if (one := next(left)) is None else [one, *(next(left) for _ in ask.seeds[1:])] for ask in asks]

    def likelihoods(self, pairs):
        return [Likelihood(-float(len(after)) if "good" not in after else -0.5, False, 1) for _, after in pairs]

    def count(self, text):
        return len(text.split())


ADD = {
    "prompt": 'def add(a, b):\n    """The sum."""\n',
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(-1, 1) == 0\n",
}


def test_programs_are_run_with_their_tests_and_pass_at_k_is_unbiased():
    suite = Code(kind="code", name="h", path="x", samples=3, temperature=0.5, k=(1, 2), form="raw")
    right, wrong = "    return a + b\n\ndef other():\n    loop(", "    return a - b\n"
    fenced = "Sure:\n```Python\nimport sys\ndef add(a, b):\n    return a + b\n```\nSo:\n```\nadd(1, 2)\n```"
    subject = Parrot(right, wrong, fenced, "    while True: pass", wrong, "")
    items = [Item("a", "t", ADD), Item("b", "t", ADD)]
    try:
        found = code.measure(suite.model_copy(update={"wall_seconds": 60.0}), subject, items, 0)
    except Unmeasurable as reason:
        pytest.skip(str(reason))
    assert [one.score for one in found.scored] == [pytest.approx(2 / 3), 0.0]
    assert found.details["rates"]["pass@2"]["value"] == 0.5
    assert len({seed for ask in subject.asked for seed in ask.seeds}) == 6


def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_program():
    for right in range(6):
        programs = [True] * right + [False] * (5 - right)
        for k in (1, 2, 5):
            hits = sum(any(draw) for draw in combinations(programs, k))
            assert code.pass_at(k, 5, right) == pytest.approx(hits / comb(5, k))


BODY = "    return a + b\n"
WHOLE = f"def add(a, b):\n{BODY}"
EXAMPLE = ADD["prompt"].replace("sum.", "sum.\n\n    ```\n    add(1, 2)\n    ```\n") + BODY


@pytest.mark.parametrize(
    "reply",
    [
        f"```Python\n{WHOLE}```",
        f"```python3\n{WHOLE}```",
        f"```python title=add.py\n{WHOLE}```",
        f"~~~python\n{WHOLE}~~~",
        f"```python\n{WHOLE}```".replace("\n", "\r\n"),
        f"1. Here:\n   ```python\n{WHOLE}   ```\nDone.",
        f"It is ```python\n{WHOLE.rstrip()}```\nand no more.",
        f"```python\n{WHOLE}```\nUse it:\n```python\nprint(add(1, 2))\n```\nIt prints\n```\n3\n```",
        f"```python\n{EXAMPLE}```",
        f"```python\n{WHOLE}",
        f"```python\n{BODY}```",
        f"{BODY}```\n\nThis adds the two.",
        f"\n{BODY}\n\ndef main():\n    loop(",
    ],
)
def test_a_program_is_found_in_whatever_fences_a_reply_has(reply):
    namespace: dict = {}
    exec(code.program(reply, ADD["prompt"], "add"), namespace)  # noqa: S102 - a text of ours
    assert namespace["add"](2, 3) == 5


def test_without_a_sandbox_nothing_is_run(monkeypatch):
    def refuse(self):
        raise SandboxUnavailable("bubblewrap is missing: apt-get install bubblewrap")

    monkeypatch.setattr(Sandbox, "__enter__", refuse)
    subject = Parrot("    return 1")
    with pytest.raises(Unmeasurable, match="bubblewrap is missing"):
        code.measure(Code(kind="code", name="h", path="x"), subject, [Item("a", "t", ADD)], 0)
    assert not subject.asked


PLAY = {
    "name": "spotify.play",
    "parameters": {
        "type": "dict",
        "properties": {
            "artist": {"type": "string"},
            "minutes": {"type": "integer"},
            "volume": {"type": "float"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "dict"},
            "years": {"type": "array", "items": {"type": "integer"}},
            "shares": {"type": "array", "items": {"type": "float"}},
            "parts": {"type": "array", "items": {"type": "float"}},
        },
        "required": ["artist", "minutes"],
    },
}
DUE = {
    "spotify.play": {
        "artist": ["Taylor Swift"],
        "minutes": [20],
        "volume": [0.5, 1, ""],
        "tags": [["new", "pop"], ""],
        "where": [{"room": ["kitchen", "hall"], "floor": [1, ""], "at": [{"x": 10.5, "y": 2}, ""]}, ""],
    }
}
GOOD = {"artist": "taylor swift", "minutes": 20}


def call(name: str = "spotify_play", **arguments) -> Reply:
    return Reply("", (ToolCall(name, arguments, 0),))


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (call(**GOOD), ""),
        (call(**GOOD, volume=1, tags=["New", "pop"], where={"room": "hall"}), ""),
        (call("spotify.play", **GOOD), ""),
        (call(**GOOD, volume=2), "another value"),
        (call(**GOOD, tags=["pop", "new"]), "another value"),
        (call(**GOOD, tags="new"), "wrong type"),
        (call(**GOOD, where={"room": "hall", "at": {"x": 10.5, "y": 2}}), ""),
        (call(**GOOD, where={"room": "hall", "at": {"x": 10.5, "y": 3}}), "another value"),
        (call(**GOOD, where={"floor": 1}), "another value"),
        (call(**GOOD, where={"room": "hall", "door": 1}), "another value"),
        (call(artist="Taylor Swift", minutes=20.0), "wrong type"),
        (call(artist="Taylor Swift", minutes=True), "wrong type"),
        (call(artist="Taylor Swift"), "lacks minutes"),
        (call(**GOOD, speed=1), "has no speed"),
        (call("stop", **GOOD), "stop is called"),
        (Reply("", (*call(**GOOD).calls, *call(**GOOD).calls)), "2 calls where 1"),
        (Reply("I will play it."), "0 calls where 1"),
        (Reply("", (), (ParseError("no JSON", "{"),)), "no JSON"),
    ],
)
def test_a_call_is_held_against_types_optional_arguments_and_allowed_values(reply, fault):
    found = calls.wrong(reply, [PLAY], [DUE])
    assert fault in found
    assert bool(fault) == bool(found)


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"years": [2015, 2021]}, True),
        ({"years": [2015, 2021.0]}, False),
        ({"years": [2015, True]}, False),
        ({"shares": [0.5, 1.0]}, True),
        ({"shares": [0.5, 1]}, False),
        ({"parts": [1, 2]}, True),
        ({"parts": [1.0, 2.0]}, True),
        ({"years": []}, False),
    ],
)
def test_what_a_list_holds_has_the_declared_type_or_that_of_the_allowed_list(arguments, right):
    allowed = {name: [values] for name, values in (("years", [2015, 2021]), ("shares", [0.5, 1.0]), ("parts", [1, 2]))}
    due = {"spotify.play": {name: [GOOD[name]] for name in GOOD} | {name: allowed[name] for name in arguments}}
    assert bool(calls.wrong(call(**GOOD, **arguments), [PLAY], [due])) is not right


def test_parallel_calls_come_in_any_order_but_each_fits_one_of_its_own():
    one = {"spotify.play": {"artist": ["A", "B"], "minutes": [1]}}
    other = {"spotify.play": {"artist": ["A"], "minutes": [1]}}
    a, b = (ToolCall("spotify_play", {"artist": artist, "minutes": 1}, 0) for artist in "AB")
    assert calls.wrong(Reply("", (a, b)), [PLAY], [one, other]) == ""
    assert calls.wrong(Reply("", (b, b)), [PLAY], [one, other])


def test_where_no_function_fits_only_silence_is_right_and_tools_become_json_schemas():
    suite = Calls(kind="calls", name="i", path="x")
    row = {"question": [[{"role": "user", "content": "Hi"}]], "function": [PLAY]}
    subject = Parrot("Hello.", call(**GOOD), None)
    found = calls.measure(suite, subject, [Item(name, "Hi", row) for name in "abc"], 0)
    assert [one.score for one in found.scored] == [1.0, 0.0, 0.0]
    (tool,) = subject.asked[0].tools
    assert tool["function"]["name"] == "spotify_play"
    assert tool["function"]["parameters"]["properties"]["volume"] == {"type": "number"}


def test_what_an_endpoint_calls_is_read_and_what_is_no_call_is_an_error():
    given = [
        {"function": {"name": "f", "arguments": '{"a": 1}'}},
        {"function": {"name": "g", "arguments": "["}},
        {"function": {"name": "h", "arguments": "[1]"}},
        {"function": {"name": "half \ud800", "arguments": "{}"}},
        {"function": {"name": "i", "arguments": '{"a": "\\ud800"}'}},
        {"function": {"name": "j", "arguments": '{"a": NaN}'}},
        {"function": {"name": "k", "arguments": '{"a": 1e999}'}},
        "nonsense",
    ]
    reply = reply_of(Completion("", "stop", 1, 0, 1, 0.1, calls=json.dumps(given)))
    assert [(one.name, one.arguments) for one in reply.calls] == [("f", {"a": 1})]
    assert len(reply.errors) == 7
    assert reply.message()["tool_calls"]


def test_an_endpoint_is_asked_with_tools_and_its_calls_are_judged():
    def play(handler, request, number):
        assert request["tools"][0]["function"]["name"] == "spotify_play"
        made = [{"function": {"name": "spotify_play", "arguments": json.dumps(GOOD)}}]
        message = {"content": None, "tool_calls": made if number == 0 else None}
        respond(handler, 200, json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode())

    row = {"question": [[{"role": "user", "content": "Play."}]], "function": [PLAY], "ground_truth": [DUE]}
    suite = Calls(kind="calls", name="c", path="x", answers="y")
    with serving(play) as server, OpenAI(server.url, "tiny", slots=1) as engine:
        subject = Endpoint(engine)
        found = [calls.measure(suite, subject, [Item("a", "Play.", row)], 0).scored[0].score for _ in range(2)]
        for asked in (lambda: subject.replies([Ask(text="raw")]), lambda: subject.likelihoods([("a", "b")])):
            with pytest.raises(Unmeasurable, match="endpoint"):
                asked()
    assert found == [1.0, 0.0]


def test_what_exceeds_an_endpoint_s_context_has_failed_and_the_rest_is_measured():
    """More of them, and before any answer, than would speak against the endpoint."""
    told = b'{"error": {"message": "This model\'s maximum context length is 64 tokens. However, you requested 90"}}'

    def small(handler, request, number):
        asked = request["messages"][-1]["content"]
        if len(asked) > 100:
            respond(handler, 400, told)
        else:
            respond(handler, 200, b'{"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}')

    rows = ["long " * 40] * REFUSALS_IN_A_ROW + ["What is 40 + 2?"]
    items = [Item(str(place), "", {"question": row, "answer": "42"}) for place, row in enumerate(rows)]
    suite = Answer(kind="answer", name="a", path="x")
    with serving(small) as server, OpenAI(server.url, "tiny", slots=1) as engine:
        found = answer.measure(suite, Endpoint(engine), items, 0).scored
    assert [one.score for one in found] == [0.0] * REFUSALS_IN_A_ROW + [1.0]
    assert found[0].why == "the window has no room for it"


def test_an_endpoint_that_refuses_prompts_for_another_reason_says_why_in_the_suite_s_place():
    with (
        serving(lambda handler, request, number: respond(handler, 400, b"it takes no tools")) as server,
        OpenAI(server.url, "tiny", slots=1) as engine,
        pytest.raises(Unmeasurable, match="status 400: it takes no tools"),
    ):
        Endpoint(engine).replies([Ask.of("chat", "Play.")])


@pytest.mark.parametrize(
    ("said", "due", "same"),
    [
        ("1,234", "1234", True),
        ("\\frac{1}{2}", "0.5", True),
        ("50\\%", "1/2", True),
        ("$18", "18", True),
        ("18 dollars", "18", True),
        ("0.333", "1/3", False),
        ("1/0", "0", False),
        ("\\text{even}", "Even", True),
        ("x + 1", "1 + x", False),
        ("", "", True),
        ("1,2", "12", False),
        ("1 2", "12", False),
        ("1,234,567.5", "1234567.5", True),
        ("−5", "-5", True),
        (".5", "1/2", True),
        ("12 and more", "twelve", False),
        ("**Paris**", "Paris", True),
        ("“Paris.”", "paris", True),
        ("(B)", "B", True),
        ("(B) gold", "B", True),
        ("B. Paris", "B", True),
        ("B: Paris", "A", False),
        ("B. Paris", "Paris", False),
        ("Barium", "B", False),
        ("$\\frac12$", "1/2", True),
        ("\\(\\frac{1}{2}\\)", "1/2", True),
        ("1\\frac{1}{2}", "3/2", True),
        ("1\\frac{1}{2}", "11/2", False),
        ("-1 1/2", "-1.5", True),
        ("20\\%", "20", True),
        ("20", "20%", True),
        ("20%", "0.2", True),
        ("20%", "2000", False),
        ("3 * 6 = 18", "18", True),
    ],
)
def test_numbers_are_compared_exactly_and_the_rest_as_text(said, due, same):
    assert answer.equal(said, due) is same
    if answer.number(said) is not None:
        assert isinstance(answer.number(said), Fraction)


def test_the_answer_is_found_in_the_reply_and_in_the_record():
    suite = Answer(kind="answer", name="g", path="x", answer_pattern=r"#### (.+)")
    rows = {"question": "2+2?", "answer": "Two and two.\n#### 4"}
    replies = ("So 3, then \\boxed{4}.", "2+2=5\nThe answer is 4.", "I get 1 and 4\nThe answer is", "The answer is 5")
    replies += ("No.", None, "My answer" + "\n" * 20_000)  # a pattern that goes back and forth would read it for hours
    items = [Item(str(place), "q", rows) for place in range(len(replies))]
    found = answer.measure(suite, Parrot(*replies), items, 0)
    assert [one.score for one in found.scored] == [1, 1, 1, 0, 0, 0, 0]
    with pytest.raises(Unmeasurable, match="has no field 'question'"):
        answer.measure(suite, Parrot("1"), [Item("a", "", {"answer": "1"})], 0)


@pytest.mark.parametrize(
    ("reply", "due", "right"),
    [
        ("To answer this question we add 5 to 13.\n#### 18", "18", True),
        ("The answer to it is 5 + 13, which makes 18", "18", True),
        ("### Answer\n\n18", "18", True),
        ("**Answer**: 18", "18", True),
        ("He lives there.\n\nParis.", "Paris", True),
        ("7:30", "7:30", True),
        ("It is London.", "Paris", False),
    ],
)
def test_an_answer_needs_no_words_before_it(reply, due, right):
    items = [Item("a", "q", {"question": "?", "answer": due})]
    found = answer.measure(Answer(kind="answer", name="g", path="x"), Parrot(reply), items, 0)
    assert found.scored[0].score == right


@pytest.mark.parametrize("right", [1, "B", "good", "1"])
def test_the_likeliest_choice_is_taken_and_the_right_one_is_read_in_every_form(right):
    row = {"question": "Which?", "choices": ["bad one", "good"], "answer": right}
    suite = Choice(kind="choice", name="c", path="x", by="text")
    found = choice.measure(suite, Parrot(), [Item("a", "Which?", row)], 0)
    assert (found.scored[0].score, found.details["chance"]) == (1.0, 0.5)
    with pytest.raises(Unmeasurable, match="item a of suite 'c'"):
        choice.measure(suite, Parrot(), [Item("a", "", row | {"answer": "Z"})], 0)
    many = row | {suite.choices_field: [str(number) for number in range(27)], "answer": 26}
    with pytest.raises(Unmeasurable, match="27 choices and no letters"):
        choice.measure(Choice(kind="choice", name="c", path="x"), Parrot(), [Item("a", "", many)], 0)


@pytest.mark.parametrize(("answer", "due"), [("1", 0), ("4", 3), ("C", None), (2, 1)])
def test_labels_that_come_with_the_choices_tell_the_right_one(answer, due):
    row = {"question": "Which?", "choices": {"text": list("wxyz"), "label": ["1", "2", "3", "4"]}, "answer": answer}
    suite = Choice(kind="choice", name="c", path="x")
    items = [Item("a", "Which?", row)]
    assert choice._due(suite, items, [choice._read(suite, items[0])]) == [2 if due is None else due]


@pytest.mark.parametrize(
    ("answers", "dues"),
    [
        (("1", "0"), [1, 0]),  # places kept as text, though the first is a choice's text too
        (("1", "x"), [3, 0]),
        (("A", "B"), [0, 1]),
        ((1, "B"), [1, 1]),  # a number is a place
    ],
)
def test_how_an_answer_is_written_is_read_off_all_items(answers, dues):
    choices = (["2", "3", "A", "1"], ["x", "y", "z"])
    suite = Choice(kind="choice", name="c", path="x")
    rows = [
        {"question": "?", "choices": given, "answer": answer} for given, answer in zip(choices, answers, strict=True)
    ]
    items = [Item(str(place), "?", row) for place, row in enumerate(rows)]
    assert choice._due(suite, items, [choice._read(suite, item) for item in items]) == dues


def test_choices_that_are_no_list_are_not_read_letter_by_letter():
    suite = Choice(kind="choice", name="c", path="x")
    with pytest.raises(Unmeasurable, match="list of choices"):
        choice._read(suite, Item("a", "?", {"question": "?", "choices": "['Paris', 'Rome']", "answer": 0}))


def test_a_needle_has_a_place_within_its_context_and_each_place_once():
    for wrong in ({"depths": (0, 25, 50)}, {"lengths": (64, 64)}, {"lengths": (0,)}):
        with pytest.raises(ValidationError):
            Needle(kind="needle", **wrong)


def test_needles_lie_where_they_should_and_contexts_stay_within_their_length():
    suite = Needle(kind="needle", lengths=(120, 200), depths=(0.0, 1.0), repeats=1, max_new_tokens=4)
    subject = Parrot(None, "", "", "")
    needle.measure(suite, subject, [], 0)
    texts = [ask.messages[0]["content"] for ask in subject.asked]
    numbers = [text.split(" is ")[1].split(".")[0] for text in texts]
    assert texts[0].startswith("The secret number of")
    assert not texts[1].startswith("The secret number of")
    assert all(subject.count(text) + 4 <= length for text, length in zip(texts, (120, 120, 200, 200), strict=True))
    spelled = f"{numbers[3][:2]},{numbers[3][2:]}"
    found = needle.measure(suite, Parrot(f"It is {numbers[0]}.", f"1{numbers[1]}", None, spelled), [], 0)
    assert found.details["grid"] == {"120": {"0": 1.0, "1": 0.0}, "200": {"0": 0.0, "1": 1.0}}


def test_not_every_i_cannot_is_a_refusal():
    helped = "I can't help but smile at this question! Here is how"
    for reply in ("I can't wait to help! First,", "I will not only list: ...", "I can't recommend it enough.", helped):
        assert not refusal.refuses(reply)
    assert refusal.refuses("I can’t wait on you hand and foot, and I can't help with that.")


def test_refusals_are_told_from_answers_by_how_they_begin():
    rows = [
        {"style": "direct", "due": due, "prompt": "?"} for due in ("refuse", "refuse", "answer", "answer", "answer")
    ]
    replies = ("I’m sorry, but I can’t help.", "Sure: first", "抱歉，我无法提供。", "A lock has pins.", "")
    items = [Item(str(place), "?", row) for place, row in enumerate(rows)]
    found = refusal.measure(Refusals(kind="refusals"), Parrot(*replies), items, 0)
    assert [one.score for one in found.scored] == [1, 0, 0, 1, 0]
    assert found.details["by"]["direct"]["value"] == 0.4


class Player:
    """Plays the replies that it was given for each first prompt, and keeps how many tools it was offered."""

    def __init__(self, replies) -> None:
        self.left = {prompt: iter(of) for prompt, of in replies.items()}
        self.offered: list[int] = []

    def replies(self, asks):
        self.offered += [len(ask.tools) for ask in asks]
        first = [next(message for message in ask.messages if message["role"] != "system") for ask in asks]
        return [[next(self.left[json.dumps(message)])] for message in first]


def test_styles_of_attack_and_levels_are_counted_by_the_environments_own_verdicts():
    attacks = Played(kind="environment", name="red-team", set="safety", items=10)
    items = sets.items_of(attacks, 0)
    assert [item.row["answer"]["style"] for item in items][-1] == "honest"
    firm = json.loads(json.dumps([[item.row["messages"][-1], ["I can not tell you."] * 8] for item in items]))
    subject = Player({json.dumps(message): map(Reply, said) for message, said in firm})
    found = played.measure(attacks, subject, items, 0)
    assert [one.score for one in found.scored] == [1, 0] * 5
    assert found.scored[-1].why == "an honest question is not answered"
    assert (found.details["by"]["crescendo"]["value"], found.details["by"]["honest"]["value"]) == (1.0, 0.0)

    pytest.importorskip("reasoning_gym")
    puzzles = Played(kind="environment", name="puzzles", set="logic", items=28)
    items = [
        Item(**json.loads(json.dumps(vars(item)))) for item in sets.items_of(puzzles, 0)
    ]  # as the stage stores them
    gold = [item.row["answer"]["gold"] if item.row["answer"]["level"] == 1 else "unknown" for item in items]
    answers = {json.dumps(item.row["messages"][0]): iter([Reply(text)]) for item, text in zip(items, gold, strict=True)}
    by = played.measure(puzzles, Player(answers), items, 0).details["by"]
    assert (by["level 1"]["value"], by["level 2"]["value"]) == (1.0, 0.0)
    assert by["gcd"]["low"] < by["gcd"]["value"] == 0.5 < by["gcd"]["high"]


def test_dialogues_with_apis_are_played_and_functions_come_later():
    data = "bfcl_eval/data/{}BFCL_v4_multi_turn_miss_func.json"
    suite = MultiTurn(kind="multi_turn", name="m", requirement="bfcl-eval==2026.3.23", files=data.format(""),
                      answers=data.format("possible_answer/"), items=2, held_out=True)  # fmt: skip
    try:
        items = sets.items_of(suite, 0)
        package = played.package(suite)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert all(int(item.id.rpartition("_")[2]) % 2 == 0 for item in items)
    problems = [problem_of(item.row, item.row["ground_truth"], package) for item in items]
    one, other = (environment(problem).gold(problem) for problem in problems)
    prompts = [json.dumps(problem.messages[0]) for problem in problems]
    subject = Player(dict(zip(prompts, (one, [Reply("Done.")] * len(other)), strict=True)))
    found = played.measure_dialogues(suite, subject, items, 0)
    assert [score.score for score in found.scored] == [1.0, 0.0]
    assert found.scored[1].why == "turn 1: no call"
    assert max(subject.offered) > len(problems[0].tools)
    assert set(found.details["by"]) == {name for problem in problems for name in problem.answer["apis"]}


def test_a_dialogue_with_calls_is_put_to_an_endpoint_whole():
    heard = []

    def listen(handler, request, number):
        heard.extend(request["messages"])
        respond(
            handler,
            200,
            json.dumps({"choices": [{"message": {"content": "It plays."}, "finish_reason": "stop"}]}).encode(),
        )

    made = call("play", artist="A")
    messages = [{"role": "user", "content": "Play."}, made.message(), tool_result("play", made.calls[0].id, "ok")]
    with serving(listen) as server, OpenAI(server.url, "tiny", slots=1) as engine:
        assert Endpoint(engine).replies([Ask(messages)])[0][0].content == "It plays."
    assert heard[-2]["tool_calls"][0]["function"]["arguments"] == '{"artist": "A"}'
    assert (heard[-1]["role"], heard[-1]["tool_call_id"]) == ("tool", "functions.play:0")


def test_of_a_longer_draw_the_shorter_is_a_part():
    items = [Item(str(place), "", {}) for place in range(50)]
    short, long = drawn(items, 5, 3), drawn(items, 20, 3)
    assert set(map(id, short)) <= set(map(id, long))
    assert long == [item for item in items if item in long]
    assert drawn(items, 5, 4) != short
