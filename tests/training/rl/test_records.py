"""Records of rollouts: what stands in them, and how many there are."""

from __future__ import annotations

import dataclasses

import pyarrow.parquet as pq
import pytest

from tests.tasks.report import rollouts
from tests.tasks.report.rollouts import CHAT, SUMS, episode, group
from training.rl.config import RecordConfig
from training.rl.records import Records, pieces, sources


def test_pieces_are_the_text_token_by_token():
    """A character of several tokens is its last one's; half a character at the end is not lost."""
    ids = [*CHAT.encode("é你a"), CHAT.stop]
    assert pieces(CHAT, ids) == ["", "é", "", "", "你", "a", "<|im_end|>"]
    half = CHAT.encode("a你")[:-1]
    assert "".join(pieces(CHAT, half)) == CHAT.decode(half)


def test_a_row_says_what_was_drawn_by_whom_and_what_it_is_worth(tmp_path):
    rollouts.write(tmp_path)
    rows = pq.read_table(tmp_path / "rollouts" / "practice-000002.parquet").to_pylist()
    (made,) = (one for each in rollouts.practice(2)[:1] for one in each.responses)
    assert (rows[0]["ids"], rows[0]["versions"]) == (made.ids, made.versions)
    assert "".join(rows[0]["pieces"]) == CHAT.decode(made.ids)
    assert rows[0]["log_probs"] == pytest.approx(made.log_probs)
    assert rows[0]["prompt"] == CHAT.decode(rows[0]["prompt_ids"]) != ""
    assert all(row["reward"] == sum(value or 0.0 for value in row["rewards"].values()) for row in rows)


def test_rewards_are_told_apart_by_their_source():
    long, cut = episode("4"), dataclasses.replace(episode("5"), finished=False)
    assert sources("practice", group(SUMS[0], [long], [1.25]), 0) == {"verdict": 1.0, "length": 0.25}
    assert sources("practice", group(SUMS[0], [cut], [-0.5]), 0) == {"cut": -0.5}
    asked = dataclasses.replace(SUMS[0], verifier="critique")
    assert sources("practice", group(asked, [episode("4")], [0.7]), 0) == {"critic": 0.7}
    for kind in ("sampled", "greedy"):  # no critic looks at what is held out
        assert sources(kind, group(asked, [episode("4")], [1.0]), 0) == {"verdict": 1.0, "length": None}


@pytest.mark.parametrize(("every", "numbers"), [(0, set()), (3, {1, 3, 6, 7}), (100, {1, 7})])
def test_so_many_iterations_and_prompts_are_kept(tmp_path, every, numbers):
    records = Records(tmp_path, CHAT, RecordConfig(every=every, prompts=2), 7, True)
    for number in range(1, 8):
        records.practised(number, [group(each, [episode("4"), episode("5", 0.0)]) for each in SUMS])
    found = {int(path.stem[-6:]): path for path in (tmp_path / "rollouts").glob("*.parquet")}
    assert found.keys() == numbers
    assert all(pq.read_metadata(path).num_rows == 2 * 2 for path in found.values())
