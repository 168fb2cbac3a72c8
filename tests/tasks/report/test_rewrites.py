from __future__ import annotations

import polars as pl
import pytest

from tasks.report.page import build_report
from tests.tasks.report import data


def pages(tmp_path) -> tuple[str, str]:
    return build_report(data.publish(tmp_path, "rewrites"))


def test_what_became_of_the_segments_is_said_by_style_and_domain(tmp_path):
    page, text = pages(tmp_path)
    assert "at the first attempt" in page
    assert "given up" in page
    assert "| academic | at the first attempt 33.3 %, given up 66.7 % |" in text
    assert "| all | at the first attempt 33.3 %, given up 66.7 % |" in text
    assert "33.3 % of 3" in page


def test_prediction_stands_beside_what_it_came_to(tmp_path):
    _, text = pages(tmp_path)
    assert "| requests | 400 | 420 | 1.05 |" in text
    assert "| generated tokens | 50,000 | 61,000 | 1.22 |" in text
    assert "| money | 0.00 |" not in text, "nothing was predicted and nothing paid"
    assert "12 answers had been paid for by another run" in text
    assert "from a measured rate" in text


def test_differences_and_reasons_are_marked(tmp_path):
    page, text = pages(tmp_path)
    assert '<ins class="new weighty">4</ins>' in page
    assert "lost 3; invented 4" in page
    assert "&lt;b&gt;" in page
    assert "<b>never</b>" not in page + text
    assert "some-&lt;model&gt;" in page


@pytest.mark.parametrize("accepted", [True, False])
def test_all_or_nothing_accepted(tmp_path, monkeypatch, accepted):
    def parts():
        found = data.rewrites_parts()
        kind, frame = found["segments/0"]
        reason = pl.lit("" if accepted else "numbers")
        return found | {"segments/0": (kind, frame.with_columns(accepted=pl.lit(accepted), reason=reason))}

    monkeypatch.setitem(data.PARTS, "rewrites", parts)
    page, text = pages(tmp_path)
    assert ("No segment was refused." if accepted else "No segment was accepted.") in text
    assert "could not be made" not in page
