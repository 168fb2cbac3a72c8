"""The law: in every family the right dialogue scores 1.0 and one that is wrong in any way does not. And what is held
out stays out."""

from __future__ import annotations

import copy
import json
import random
import re

import pytest

from model.dialogue import assistant, numbered, spaced
from tests.training.rl.worlds.spoiled import SPOILED, spoil
from training.rl.worlds.episode import Episode
from training.rl.worlds.families.table import FAMILIES
from training.rl.worlds.filters import Trajectory, as_written, judge, verify
from training.rl.worlds.personas import PERSONAS
from training.rl.worlds.policies import WRONG, play
from training.rl.worlds.task import Kind, draw_task
from training.rl.worlds.wording import FRAMES, SPLITS, fields, say, split_of

HARD = Kind(faulty=0.6, denied=0.15, forgetful=0.5, follow_ups=0.3)
EASY = Kind(faulty=0, denied=0, forgetful=0, follow_ups=0)


def right(task):
    made = play(task)
    assert made is not None
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_the_right_one_scores_and_the_wrong_ones_do_not(family):
    for seed in range(6):
        task = draw_task(f"law/{seed}", "test", HARD, family)
        gold = right(task)
        verdict = judge(gold)
        assert verdict.score == 1.0, (verdict, gold.messages, task.rubric)
        for policy in WRONG:
            wrong = play(task, policy, seed)
            if wrong is not None:
                verdict = judge(wrong)
                assert verdict.score == 0.0, (policy, wrong.messages, task.rubric)
                assert verdict.reason
        for way in SPOILED:
            spoiled = spoil(task, way)
            assert spoiled is None or judge(spoiled).score == 0.0, (way, spoiled.messages)


def test_arguments_are_written_as_the_template_writes_a_served_history():
    """Another form of the same call would be other tokens than the model was trained on."""
    messages = [message for seed in range(6) for message in right(draw_task(seed, "train", HARD)).messages]
    written = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls", ())]
    assert len(written) > 6
    assert written == [spaced(json.loads(text)) for text in written]


@pytest.fixture(scope="module")
def tasks():
    return [draw_task(f"all/{seed}", split, HARD) for seed in range(40) for split in SPLITS]


def test_every_way_of_being_wrong_happens_and_is_told_apart(tasks):
    rules = {policy: set() for policy in WRONG}
    policies = set()
    for task in tasks:
        policies.add(right(task).policy)
        for policy in WRONG:
            wrong = play(task, policy)
            if wrong is not None:
                rules[policy].add(judge(wrong).rule)
    assert policies == {"right", "recovering"}
    assert all(rules.values()), rules
    assert rules["invented tool"] == {"declared"}
    assert "ends" in rules["too many steps"]
    assert "grounded" in rules["invented answer"]
    assert rules["no question"] <= {"grounded", "asked"}


def test_an_integer_may_be_written_as_a_float(tasks):
    """To JSON schema and to the world 269.0 is the integer that the user said."""
    seen = 0
    for task in tasks:
        messages = copy.deepcopy(list(right(task).messages))
        for call in [call for message in messages for call in message.get("tool_calls", ())]:
            given = json.loads(call["function"]["arguments"])
            seen += any(type(value) is int for value in given.values())
            floats = {name: float(value) if type(value) is int else value for name, value in given.items()}
            call["function"]["arguments"] = json.dumps(floats)
        verdict = judge(Trajectory(task, tuple(messages), "right"))
        assert verdict.score == 1.0, (verdict, messages)
    assert seen > 20


MONTHS = "January February March April May June July August September October November December".split()
HABITS = {
    "capitals": str.upper,
    "a list": lambda text: f"1. I looked.\n2. {text}",
    "no full stop": lambda text: f"“{text.rstrip('.。')}”",
    "dates in words": lambda text: re.sub(
        r"(\d{4})-(\d\d)-(\d\d)", lambda day: f"{MONTHS[int(day[2]) - 1]} {int(day[3])}, {day[1]}", text
    ),
    "cents": lambda text: re.sub(r"(?<![\w:-])(\d+)( euros|欧元)", r"\1.00\2", text),
    "a comma in thousands": lambda text: re.sub(r"(?<![\w:-])(\d)(\d{3})(?=欧元| euros)", r"\1,\2", text),
    "afternoons": lambda text: re.sub(r"\b(\d\d):(\d\d)\b", afternoon, text),
    "its calls are counted": lambda text: f"{text} It took me 1 call.",
}


def afternoon(time):
    hour = int(time[1])
    return f"{hour % 12 or 12}:{time[2]} {'AM' if hour < 12 else 'PM'}"


@pytest.mark.parametrize("habit", HABITS.values(), ids=HABITS)
def test_how_a_model_writes_decides_nothing(habit):
    """The last turn as models are used to write it, and searches in small letters."""
    for family in FAMILIES:
        task = draw_task("habits", "test", Kind(follow_ups=0, denied=0.2, faulty=0), family)
        episode = Episode(task)
        messages = [message for message in right(task).messages if message["role"] == "assistant"]
        for message in messages[:-1]:
            calls = copy.deepcopy(message.get("tool_calls", []))
            for call in calls:
                if task.toolbox[call["function"]["name"]] in ("find", "search"):
                    call["function"]["arguments"] = call["function"]["arguments"].lower()
            episode.step({**message, "tool_calls": calls})
        episode.step(assistant(habit(messages[-1]["content"])))
        assert verify(episode).score == 1.0, (verify(episode), episode.messages, task.rubric.says)


@pytest.mark.parametrize(
    ("spoken", "known", "written"),
    [
        ("269.00 euros", "269", "269 euros"),
        ("269.50 euros", "269", "269.50 euros"),
        ("1,269 euros", "1269", "1269 euros"),
        ("1,269.00 euros", "1269", "1269 euros"),
        ("1,269 of them", "1 and 269", "1,269 of them"),
        ("at 2:45 PM.", "14:45", "at 14:45"),
        ("at 2:45 p.m. on Monday", "14:45", "at 14:45 on Monday"),
        ("at 9 am", "09:00", "at 09:00"),
        ("12:15 AM, 12:15 PM", "00:15 12:15", "00:15, 12:15"),
        ("at 2:45 PM", "02:45", "at 2:45 PM"),
        ("Hugo has 5 amplifiers", "17:00 05:00", "Hugo has 5 amplifiers"),
    ],
)
def test_amounts_and_times_are_read_in_other_spellings_where_the_world_said_them(spoken, known, written):
    assert as_written(spoken, known) == written


@pytest.mark.parametrize(
    ("words", "score"),
    [
        ("{answer} It took me 1 call.", 1.0),
        ("{answer} It took me 2 calls.", 1.0),
        ("{answer} It took me 9 calls.", 0.0),
        ("{answer} That leaves 9 euros.", 0.0),
        ("{answer} See you at 9:59 PM.", 0.0),
        ("{answer} That is 9,999,999 cents.", 0.0),
    ],
)
def test_what_is_counted_must_be_so(words, score):
    task = draw_task("count/3", "test", EASY, "bank.pay_person")
    turns = [message for message in right(task).messages if message["role"] == "assistant"]
    episode = Episode(task)
    for turn in turns[:-1]:
        episode.step(turn)
    episode.step(assistant(words.format(answer=task.requests[0].answer)))
    assert verify(episode).score == score, (verify(episode), episode.messages)


def test_a_user_who_is_asked_whether_to_go_ahead_says_yes_once_a_request():
    for family in ("bank.transfer", "calendar.day"):
        task = draw_task("ahead", "test", EASY, family)
        turns = [message for message in right(task).messages if message["role"] == "assistant"]
        episode = Episode(task)
        (answer,) = episode.step(assistant("Shall I go ahead?" if task.language == "english" else "可以开始吗？"))
        assert answer["content"] == task.persona.go_ahead[task.language]
        for turn in turns:
            episode.step(turn)
        assert verify(episode).score == 1.0, (verify(episode), episode.messages)
        again = Episode(task)
        assert again.step(assistant("Shall I go ahead?"))
        assert again.step(assistant("Really?")) == []
        assert verify(again).score == 0.0
        offers = Episode(task)
        for turn in turns[:-1]:
            offers.step(turn)
        assert offers.step(assistant(f"{turns[-1]['content']} Anything else?")) == [], "it was done already"
        assert verify(offers).score == 1.0


def test_each_request_of_two_may_be_asked_about():
    task = draw_task("twice", "train", Kind(follow_ups=1, faulty=0, denied=0, forgetful=0))
    assert len(task.requests) == 2
    episode = Episode(task)
    assert "content" in episode.step(assistant("Shall I go ahead?"))[0]
    assert episode.step(assistant("Fine."))[0]["content"] == task.requests[1].text
    assert episode.step(assistant("Shall I?"))[0]["content"] == task.persona.go_ahead[task.language]
    assert episode.step(assistant("Shall I?")) == []


def test_a_file_that_is_named_by_its_text_is_the_only_one():
    """Two files may hold one line, with its full stop and without."""
    line = "Meet at the north gate."
    data = {"files": {"/work/a.txt": line, "/work/b.txt": line.rstrip("."), "/home/c.txt": "Rent is due on the first."}}
    drawn = {FAMILIES["files.delete_by_text"].draw(data, random.Random(seed))["phrase"] for seed in range(20)}
    assert drawn == {"Rent is due on the first"}


def test_a_dialogue_that_was_changed_afterwards_is_found_out(tasks):
    task = next(task for task in tasks if len(right(task).messages) > 4 and not task.system)
    gold = right(task)

    def changed(place, **fields):
        messages = copy.deepcopy(list(gold.messages))
        messages[place].update(fields)
        return judge(Trajectory(task, tuple(messages), "changed"))

    result = next(place for place, message in enumerate(gold.messages) if message["role"] == "tool")
    assert changed(result, content='{"ok":true}').rule == "replay"
    assert changed(result, tool_call_id="functions.x:9").rule == "replay"
    assert changed(0, content="Do something else.").rule == "replay"
    calls = copy.deepcopy(gold.messages[result - 1].get("tool_calls") or gold.messages[result - 2]["tool_calls"])
    calls[0]["id"] = "functions.x:9"
    asks = next(place for place, message in enumerate(gold.messages) if message.get("tool_calls"))
    assert changed(asks, tool_calls=calls).rule == "replay"
    assert judge(Trajectory(task, gold.messages[:-1], "cut")).rule == "ends"


def test_same_seed_same_dialogue(tasks):
    for seed in range(10):
        assert right(draw_task(seed, "train")).messages == right(draw_task(seed, "train")).messages


def ids(message):
    return [call["id"] for call in message.get("tool_calls", ())], message.get("tool_call_id")


def test_dialogues_are_in_the_chat_format(tasks):
    for task in tasks:
        messages = list(right(task).messages)
        assert [ids(message) for message in numbered(messages)] == [ids(message) for message in messages]
        json.dumps(task.tools)


def test_a_split_holds_nothing_that_is_held_out_from_it(tasks):
    held = {split: set() for split in SPLITS}
    for task in tasks:
        for kind in ("tool", "function"):
            for tool, function in task.toolbox.items():
                side = split_of(kind, tool if kind == "tool" else f"{task.world.name}.{function}")
                held[task.split].add(side)
        assert bool(task.unseen) == (task.split != "train")
    assert held["train"] == {"train"}
    assert held["development"] == {"train", "development"}
    assert held["test"] == {"train", "development", "test"}
    problems = {split: {task.id for task in tasks if task.split == split} for split in SPLITS}
    assert not problems["train"] & (problems["development"] | problems["test"])
    for kind in ("wording", "arguments", "tool", "function"):
        for split in ("development", "test"):
            assert any(kind in task.unseen for task in tasks if task.split == split), f"no unseen {kind} in {split}"


def test_there_are_many_wordings_and_each_family_can_be_trained():
    said, clauses = set(), dict.fromkeys(SPLITS, 0)
    for family in FAMILIES.values():
        for language in ("english", "chinese"):
            wordings = family.wordings(language)
            assert len(set(wordings)) == len(wordings)
            said |= {
                say(frame, clause) for style in FRAMES.values() for frame in style[language] for clause in wordings
            }
            sides = [split_of("wording", clause) for clause in wordings]
            for side in sides:
                clauses[side] += 1
            assert "train" in sides, f"{family.name}: nothing of it in {language} could be trained"
    assert len(said) > 3000
    assert sum(clauses.values()) >= 280
    assert min(clauses["development"], clauses["test"]) >= 20


def test_the_user_gives_what_is_missing_only_when_asked():
    task = next(
        task
        for seed in range(200)
        if (task := draw_task(f"ask/{seed}", "train", Kind(forgetful=1, follow_ups=0, faulty=0, denied=0)))
        .requests[0]
        .missing
    )
    request = task.requests[0]
    asked = Episode(task)
    assert asked.step(assistant("What exactly?")) == [{"role": "user", "content": request.reply}]
    silent = Episode(task)
    assert silent.step(assistant("Done.")) == []
    assert silent.done
    assert verify(silent).score == 0.0
    with pytest.raises(ValueError, match="over"):
        silent.step(assistant("More."))


def test_users_speak_as_their_persona_does_over_all_turns():
    """The opening by the frames of its style, what was missing, the word to go ahead and the second request by its own
    phrases; and all personas occur."""
    seen = set()
    kind = Kind(forgetful=1, follow_ups=1, faulty=0, denied=0)
    for seed in range(60):
        task = draw_task(f"persona/{seed}", "train", kind)
        persona, language, second = task.persona, task.language, task.requests[1]
        seen.add(persona.name)
        assert second.text.startswith(persona.next[language])
        for request in task.requests:
            if request.missing:
                value = request.arguments[request.missing]
                assert request.reply in [reply.format(value=value) for reply in persona.replies[language]]
        users = [message["content"] for message in right(task).messages if message["role"] == "user"]
        assert users[0] == task.requests[0].text
        assert second.text in users
        starts = [frame.partition("{")[0] for frame in FRAMES[persona.style][language]]
        assert any(users[0].startswith(start) for start in starts)
    assert seen == {persona.name for persona in PERSONAS}
    assert {persona.style for persona in PERSONAS} == set(FRAMES), "every style is spoken"
    phrases = [phrase for one in PERSONAS for phrase in one.replies["english"]]
    assert all(fields(phrase) == {"value"} for phrase in phrases)


def test_a_follow_up_sees_what_the_first_request_did():
    task = next(
        task
        for seed in range(200)
        if len((task := draw_task(f"two/{seed}", "train", Kind(follow_ups=1, faulty=0, denied=0))).requests) == 2
    )
    users = [message["content"] for message in right(task).messages if message["role"] == "user"]
    assert [request.text for request in task.requests] == [
        said for said in users if said in {r.text for r in task.requests}
    ]


@pytest.mark.parametrize(
    "turn",
    [
        {},
        {"content": None},
        {"content": 7},
        {"tool_calls": "all of them"},
        {"tool_calls": [None, 3, {}]},
        {"tool_calls": [{"function": None}]},
        {"tool_calls": [{"function": {"name": None, "arguments": None}}]},
        {"tool_calls": [{"function": {"name": "x", "arguments": "{"}}]},
        {"tool_calls": [{"function": {"name": "x", "arguments": "[" * 100_000}}]},
        {"tool_calls": [{"function": {"name": "x" * 10_000, "arguments": "{}"}}] * 100},
    ],
)
def test_no_turn_of_a_model_raises(turn):
    episode = Episode(draw_task(1, "train", EASY))
    episode.step(turn)
    assert verify(episode).score == 0.0


def test_garbage_arguments_to_a_real_tool_score_nothing():
    task = draw_task(2, "train", EASY)
    for given in ("null", "[]", "{", "{}", '{"x": NaN}', '{"account": {"a": []}}'):
        episode = Episode(task)
        name = task.rubric.pattern[0]
        episode.step({"content": "", "tool_calls": [{"id": "", "function": {"name": name, "arguments": given}}]})
        assert episode.calls[0].outcome.error == "invalid_arguments"
        assert verify(episode).rule == "fits"
