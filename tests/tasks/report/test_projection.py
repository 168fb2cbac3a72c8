from __future__ import annotations

import re

import numpy as np
import pytest

from tasks.agentic.synthesis.config import ToolsConfig
from tasks.agentic.synthesis.tools import run
from tasks.artifact import Step
from tasks.launch import Execution
from tasks.report.page import build_report
from tasks.report.projection import plane

TRADES = ("bread oven flour yeast crust", "engine wheel brake clutch petrol", "violin bow string sonata chord")


def texts(each: int) -> list[str]:
    """Mixed words of three trades, one after the other."""
    return [" ".join(trade.split()[start % 3 : start % 3 + 3]) for start in range(each) for trade in TRADES]


@pytest.mark.parametrize("each", [5, 40])  # principal components alone, and t-SNE
def test_what_is_alike_lies_together(each):
    points = plane(texts(each))
    assert points.shape == (3 * each, 2)
    assert points.min() >= 0
    assert points.max() <= 1
    centres = [points[trade::3].mean(axis=0) for trade in range(3)]
    for trade in range(3):
        to = [np.linalg.norm(points[trade::3] - centre, axis=1) for centre in centres]
        assert (np.argmin(to, axis=0) == trade).all()
    assert (plane(texts(each)) == points).all()


@pytest.mark.parametrize("few", [["one tool"], ["one tool", "one tool"], ["", ""]])
def test_too_few_to_tell_apart_are_points_all_the_same(few):
    assert np.isfinite(plane(few)).all()


def test_the_page_draws_every_tool_on_the_map(tmp_path):
    step = Step("tools", ToolsConfig(count=24, per_domain=3), str(tmp_path))
    run(step, Execution())
    page, markdown = build_report([step])
    names = set(re.findall(r"<title>(\w+\.\w+) \(", page))
    assert len(names) == 24
    assert "could not be made" not in page
    assert "data card" in markdown
