"""Ranks in their places, and layers and experts in theirs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from model.sizes import model_preset
from tests.training.runs import MODEL, STAGES
from training.config import PretrainConfig
from training.layout import Layout, LayoutError

SIDES = st.integers(1, 6)


@given(pipeline=SIDES, data=SIDES, expert=SIDES)
def test_every_rank_has_a_place_of_its_own(pipeline: int, data: int, expert: int) -> None:
    layout = Layout(pipeline=pipeline, expert=expert)
    ranks = pipeline * data * expert
    places = [layout.place(rank, ranks) for rank in range(ranks)]
    assert len(set(places)) == ranks
    assert places == sorted(places, key=lambda place: (place.pipeline, place.data, place.expert))
    assert {place.data for place in places} == set(range(data))


@given(pipeline=st.integers(1, 8), virtual=st.integers(1, 4))
def test_pieces_hold_every_layer_once_and_differ_by_one(pipeline: int, virtual: int) -> None:
    k2 = model_preset("k2")
    pieces = Layout(pipeline=pipeline, virtual=virtual).layers(k2)
    assert len(pieces) == pipeline * virtual
    assert [layer for piece in pieces for layer in piece] == list(range(61))
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
    assert len(pieces[-1]) == min(map(len, pieces))


def test_k2s_layout_takes_multiples_of_32_nodes() -> None:
    layout = Layout(pipeline=16, expert=16)
    layout.require(model_preset("k2"))
    assert layout.data(96 * 8) == 3
    assert list(layout.experts(model_preset("k2"), 15)) == list(range(360, 384))
    with pytest.raises(LayoutError, match=r"776 ranks do not hold whole copies .* such as 1024"):
        layout.data(97 * 8)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"pipeline": 2, "virtual": 2}, "2 x 2 pieces for 2 layers"),
        ({"expert": 3}, "4 experts do not divide by expert = 3"),
        ({"expert": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_cut_is_refused(layout: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PretrainConfig.model_validate({"model": MODEL, "stages": STAGES, "run": {"layout": layout}})
