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


def test_rewrites_without_a_prediction_have_what_they_cost(tmp_path, monkeypatch):
    older = {name: value for name, value in data.rewrites().items() if name not in ("comparison", "prediction")}
    monkeypatch.setitem(data.STATISTICS, "rewrites", lambda: older)
    page, text = pages(tmp_path)
    assert "| generated tokens | 61,000 |" in text
    assert "hold no prediction" in text
    assert "could not be made" not in page


def test_differences_and_reasons_are_marked(tmp_path):
    page, text = pages(tmp_path)
    assert '<ins class="new weighty">4</ins>' in page
    assert "lost 3; invented 4" in page
    assert "&lt;b&gt;" in page
    assert "<b>never</b>" not in page + text
    assert "some-&lt;model&gt;" in page


def test_link_only_to_a_page_of_these_rewrites(tmp_path):
    found = data.publish(tmp_path, "rewrites")
    fingerprint = next(step.fingerprint for step in found if step.name == "rewrites")
    link = '<a href="rewrites.html">'
    assert "openk2 inspect rewrites --html" in build_report(found)[0]
    (tmp_path / "rewrites.html").write_text("of others")
    assert link not in build_report(found)[0]
    (tmp_path / "rewrites.html").write_text(f"of {fingerprint}")
    assert link in build_report(found)[0]


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
