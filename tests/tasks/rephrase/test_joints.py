"""Where segments meet, and the document as a whole: nothing twice, nothing too early, nothing out of its place."""

from __future__ import annotations

import pytest

from tasks.rephrase.alignment.joints import Piece, echoes, foreign, seam
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import PARAPHRASES

CONFIG = AlignmentConfig()
(ONE, SAID_ONE), (TWO, SAID_TWO) = PARAPHRASES[1], PARAPHRASES[3]


def test_a_good_joint_passes() -> None:
    pair = Pair(TWO, SAID_TWO, before=SAID_ONE, before_source=ONE, after_source=PARAPHRASES[5][0])
    assert seam(pair, CONFIG).passed


@pytest.mark.parametrize("before", [SAID_ONE, ONE], ids=["rewritten", "kept"])
def test_a_sentence_said_again_at_the_joint_is_refused(before: str) -> None:
    last = before.split(". ")[-1]
    verdict = seam(Pair(TWO, f"{last} {SAID_TWO}", before=before, before_source=ONE), CONFIG)
    assert not verdict.passed
    assert "its neighbour says" in verdict.why or "repeat" in verdict.why


def test_what_the_sources_own_segments_share_may_be_shared() -> None:
    chorus = "Row, row, row your boat, gently down the stream of life."
    assert seam(
        Pair(f"Second verse here. {chorus}", f"{chorus} Verse two.", before=chorus, before_source=chorus), CONFIG
    ).passed


def pieces(*texts: tuple[str, str]) -> list[Piece]:
    return [Piece(source, text, source != text) for source, text in texts]


def test_an_echo_across_the_document_blames_the_later_rewriting() -> None:
    sentence = "The planet has no moons and needs 88 days to go round the Sun."
    again = "The planet has no moons, and needs 88 days to go round the Sun."
    whole = pieces((ONE, sentence), (PARAPHRASES[4][0], PARAPHRASES[4][1]), (TWO, f"{SAID_TWO} {again}"))
    found = echoes(whole, CONFIG)
    assert (found.passed, dict(found.guilty)) == (False, {2: again})
    assert "88 days" in found.why
    assert echoes(pieces((sentence, sentence), (TWO, SAID_TWO), (again, again)), CONFIG).passed


def test_as_many_pieces_are_blamed_at_once_as_it_takes_and_no_more() -> None:
    """Of forty pieces all but the first end alike: two echoes are borne, so the last 37 are to blame."""
    end = "All of this shows how rich the whole of the matter is."
    bodies = [" ".join(f"Word{number}x{place}" for place in range(9)) + "." for number in range(40)]
    found = echoes(pieces(*((body, f"{body} {end}") for body in bodies)), AlignmentConfig(echoes=0.025))
    assert found.guilty == dict.fromkeys(range(39, 2, -1), end)
    mended = [(body, f"{body} {end}" if number < 3 else body) for number, body in enumerate(bodies)]
    assert len(echoes(pieces(*mended), AlignmentConfig(echoes=0.025)).guilty) <= 1  # fewer sentences bear fewer echoes


def test_a_translated_document_with_chinese_left_in_it() -> None:
    whole = pieces(
        ("北京是首都。", "Beijing is the capital."),
        ("表格：人口、面积、历史、地理。", "表格：人口、面积、历史、地理。"),
    )
    assert not foreign(whole, CONFIG, "zh").passed
    assert foreign(whole, CONFIG, "").passed
    assert foreign(whole[:1], CONFIG, "zh").passed


def test_echoes_of_a_long_document_are_found_in_time() -> None:
    """Two thousand sentences that begin alike."""
    text = " ".join(f"The value of the number {number} in the table is {number * 7}." for number in range(2_000))
    assert echoes([Piece(text, text, False)], CONFIG).passed
