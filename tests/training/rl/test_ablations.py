"""The study of RL's parts: its page says what its runs came to."""

from __future__ import annotations

from pathlib import Path

from benchmarks import rl_ablations as study
from benchmarks import rl_pauses as pauses
from benchmarks.studies import read_table
from tests.tasks.report import rollouts

CLAIMS = Path(__file__).resolve().parents[3] / "docs" / "claims"


def test_the_page_has_the_tables_of_the_runs():
    runs = read_table(CLAIMS / "rl" / "runs.csv")
    assert {run["arm"] for run in runs} == {study.BEFORE, *study.ARMS}
    page = (CLAIMS / "rl.md").read_text(encoding="utf-8")
    for table in study.markdown(runs).split("\n\n"):
        assert table in page, "python -m benchmarks.rl_ablations --tables prints them"


def test_the_page_has_the_table_of_what_pauses_bring():
    runs = read_table(CLAIMS / "rl" / "pauses.csv")
    assert {run["arm"] for run in runs} == {*pauses.ARMS}
    assert pauses.markdown(runs) in (CLAIMS / "rl.md").read_text(encoding="utf-8")


def test_the_page_has_the_table_of_when_pauses_cost():
    runs = read_table(CLAIMS / "rl" / "regimes.csv")
    assert {run["arm"] for run in runs} == {*pauses.REGIMES}
    assert pauses.regimes_markdown(runs) in (CLAIMS / "rl.md").read_text(encoding="utf-8")


def test_the_tail_of_a_run_is_what_one_policy_draws_of_a_reply(tmp_path):
    rollouts.write(tmp_path)
    episodes = [one for number in (1, 2) for group in rollouts.practice(number) for one in group.responses]
    versions = sorted({version for one in episodes for version in one.versions if version >= 0})
    longest = [max(one.drawn(version) for one in episodes) for version in versions]
    found = pauses.tail(tmp_path)
    assert found["longest"] == round(sum(longest) / len(longest), 2)
    assert found["paused"] == round(sum(len({*one.versions} - {-1}) > 1 for one in episodes) / len(episodes), 4)


def test_an_iteration_waits_for_its_longest_response(tmp_path):
    rollouts.write(tmp_path)
    longest = [
        max(one.drawn(number - 1) for group in rollouts.practice(number) for one in group.responses)
        for number in (1, 2)
    ]
    assert study.waits(tmp_path, None) == longest
    assert study.waits(tmp_path, 12) == [12, 12]
