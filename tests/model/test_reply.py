"""Assistant turns read back: what is broken is said and what is whole is kept, however the turn was cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model.chat import Chat, Piece, Reply, ToolCall, flat
from model.reply import ARGUMENTS, CALL, CALL_END, END, SECTION, SECTION_END
from tests.posttraining import byte_tokenizer

CHAT = Chat(byte_tokenizer())
RAW = Tokenizer.from_str(byte_tokenizer().to_str())  # reads a marker's name as the marker


def ids_of(text: str) -> list[int]:
    """The ids of a turn that is written with markers' names."""
    return RAW.encode(text, add_special_tokens=False).ids


def read(text: str) -> Reply:
    return CHAT.parse(ids_of(text))


def one(arguments: str = "{}", call_id: str = "functions.f:0") -> str:
    return f"{CALL}{call_id}{ARGUMENTS}{arguments}{CALL_END}"


def reasons(reply: Reply) -> list[str]:
    return [error.reason for error in reply.errors]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"a": 1e999}', "not JSON: what they hold cannot be written"),
        ('{"a": -1e999}', "not JSON: what they hold cannot be written"),
        ('{"a": "\\ud800"}', "not JSON: what they hold cannot be written"),
        ('{"\\udfff": 1}', "not JSON: what they hold cannot be written"),
        ('{"a": Infinity}', "Infinity is no JSON"),
        ('{"a": {"b": 1, "b": 2}}', "a key is there twice"),
        ('{"a": ' * 101 + "1" + "}" * 101, "nest deeper than 100 levels"),
        ("", "not JSON"),
        ("null", "not a JSON object"),
    ],
)
def test_arguments_that_json_cannot_say_are_broken(arguments, reason):
    reply = read(f"{SECTION}{one(arguments)}{SECTION_END}{END}")
    assert reply.calls == ()
    assert len(reply.errors) == 1
    assert reason in reply.errors[0].reason


@pytest.mark.parametrize("name", ["a.b.c", "a:b", "größe", "天气", "functions.f", " a"])
def test_a_name_may_hold_anything(name):
    reply = read(f"{SECTION}{one(call_id=f'functions.{name}:12')}{SECTION_END}{END}")
    assert reply == Reply("", (ToolCall(name, {}, 12),))


def test_space_around_an_id_its_arguments_and_the_calls_is_forgiven():
    reply = read(f"a{SECTION}\n{one(' {} ', ' functions.f:0 ')} \n{one(call_id='functions.g:1')}\n{SECTION_END}{END}")
    assert reply == Reply("a", (ToolCall("f", {}, 0), ToolCall("g", {}, 1)))


@pytest.mark.parametrize("space", ["\n", " \n\n"])
def test_space_behind_the_calls_is_forgiven(space):
    for ended in (True, False):
        reply = read(f"a{SECTION}{one()}{SECTION_END}{space}{END * ended}")
        assert reply == Reply("a", (ToolCall("f", {}, 0),), finished=ended)


@pytest.mark.parametrize(
    ("text", "kept", "reason"),
    [
        (
            f"{SECTION}{CALL}functions.f:0{ARGUMENTS}{{}}{one(call_id='functions.g:1')}{SECTION_END}",
            "g",
            "call has no end",
        ),
        (f"{SECTION}{one()}{CALL}functions.g:1{ARGUMENTS}{{}}{SECTION_END}", "f", "call has no end"),
        (f"{SECTION}{one()}{CALL}functions.g:1{ARGUMENTS}{{", "f", "call has no end"),
        (f"{SECTION}{one()}", "f", "section has no end"),
        (f"{SECTION}{one()} and {one('{', 'functions.g:1')}{SECTION_END}", "f", "text stands between the calls"),
        (f"{SECTION}{one()}{SECTION}{SECTION_END}", "f", "only text belongs"),
        (f"{SECTION}{one()}{SECTION_END}{SECTION}{one()}{SECTION_END}", "f", "behind the tool section"),
        (f"{SECTION}{one()}{SECTION_END} more", "f", "behind the tool section"),
    ],
)
def test_whole_calls_beside_something_broken_are_kept(text, kept, reason):
    for ended in (True, False):
        reply = read(text + END * ended)
        assert [call.name for call in reply.calls] == [kept]
        assert any(reason in said for said in reasons(reply))
        assert reply.finished == ended


def test_a_turn_is_rendered_again_as_the_model_wrote_it():
    text = f"Hm.{SECTION}{one(' {  }')}{one(json.dumps({'x': 'é'}), 'functions.g.h:1')}{SECTION_END}{END}"
    (_, again) = CHAT.render([read(text).message()])
    assert again == (ids_of(text), True)


def test_nothing_is_read_behind_the_end():
    assert read(f"a{END}b{SECTION}{END}") == Reply("a")


def test_pieces_of_a_turn_come_as_soon_as_they_can_be_shown():
    stream = CHAT.stream()
    assert [stream.add([token]) for token in ids_of("né")] == [
        [Piece("content", "n")],
        [],  # the second half of é is still to come
        [Piece("content", "é")],
    ]
    assert stream.add(ids_of(f"{SECTION}{CALL}functions.a.")) == []
    assert stream.add(ids_of(f'b:0{ARGUMENTS}{{"x"')) == [Piece("call", "functions.a.b:0"), Piece("arguments", '{"x"')]
    assert stream.add(ids_of(f": 1}}{CALL_END}{SECTION_END}{END}")) == [Piece("arguments", ": 1}")]
    assert stream.reply() == Reply("né", (ToolCall("a.b", {"x": 1}, 0),))


def test_a_character_that_never_ends_is_shown_at_the_end():
    stream = CHAT.stream()
    assert stream.add(CHAT.encode("é")[:1]) == []
    assert stream.rest() == [Piece("content", "\ufffd")]
    assert stream.reply() == CHAT.parse(CHAT.encode("é")[:1])


def joined(pieces: list[Piece]) -> dict[str, str]:
    return {
        kind: "".join(piece.text for piece in pieces if piece.kind == kind) for kind in ("content", "call", "arguments")
    }


MARKERS = [SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, END, "<|im_user|>"]
WORDS = ["functions.f:0", "functions.g.h:1", '{"a": "é"}', "{}", " ", "<|", "<|im_e", "|>", "北😀", "<", "\n"]
TURNS = st.one_of(
    st.lists(st.sampled_from([*MARKERS, *WORDS, one(), one('{"a": "北"}', "functions.g.h:1")]), max_size=25).map(
        "".join
    ),
    st.sampled_from([f"北é{SECTION}{one()}{one('{', 'functions.ü:1')}{SECTION_END}{END}"]),
)


@given(TURNS, st.data())
@settings(max_examples=300)
def test_a_turn_cut_anywhere_is_the_same_turn(text, data):
    """Between any two ids, also within a character."""
    ids = ids_of(text)
    whole = CHAT.parse(ids)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=12)))
    stream, pieces = CHAT.stream(), []
    for start, stop in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        pieces += stream.add(ids[start:stop])
    pieces += stream.rest()
    assert stream.reply() == whole
    shown = joined(pieces)
    assert shown["content"] == whole.content
    for call in whole.calls:
        assert call.id in shown["call"]
        assert call.written in shown["arguments"]


def test_a_long_turn_takes_one_reading():
    written = json.dumps({"x": "é" * 300_000}, ensure_ascii=False)
    reply = read(f"{'a' * 300_000}{SECTION}{one(written)}{SECTION_END}{END}")
    assert reply.calls[0].written == written
    assert flat(CHAT.render([reply.message()]))[0][-1] == CHAT.stop
