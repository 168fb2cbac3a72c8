"""Stop strings: where a text is cut."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.serve.turn import StopStrings

word = st.text("ab", min_size=1, max_size=4)


def shown(pieces: Iterable[str], stops: list[str]) -> str:
    """What is shown of a text that comes in these pieces."""
    cut, text = StopStrings(stops), ""
    for piece in pieces:
        text += cut.add(piece)
        if cut.met:
            return text
    return text + cut.rest()


@given(pieces=st.lists(word, max_size=6), stops=st.lists(word, min_size=1, max_size=3))
def test_a_text_is_cut_at_the_same_place_whatever_pieces_it_comes_in(pieces, stops):
    text = "".join(pieces)
    assert shown(pieces, stops) == shown(text, stops)
    assert text.startswith(shown(text, stops))
    assert not any(stop in shown(text, stops) for stop in stops)
    if not any(stop in text for stop in stops):
        assert shown(text, stops) == text


@pytest.mark.parametrize("pieces", [["xabcd"], ["xab", "cd"], [*"xabcd"]])
def test_of_two_that_overlap_the_one_that_is_complete_first_cuts(pieces):
    assert shown(pieces, ["abcd", "bc"]) == "xa"
    assert shown(pieces, ["c", "abc"]) == "x"
