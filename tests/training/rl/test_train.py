"""RL as a job on a tiny network: the reward rises, and a run that is cut ends with the bytes of one that is not."""

from __future__ import annotations

import copy
import json
import os
import signal
import statistics
import threading
import time
import weakref
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.posttraining import RL, Cut, World, cut_after, finals, go, model_artifact, summary, write_job
from training.checkpoint import load_model, load_state
from training.metrics import read_metrics
from training.rl import episodes, rollout, train
from training.rl.config import RlConfig
from training.rl.environments.exact import ExactAnswer
from training.rl.measuring import fallen
from training.rl.practice import Practice
from training.rl.train import Reinforcement
from training.sft import Tuning
from training.trainer import DONE, FAILED, PREEMPTED, Trainer


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("posttraining"))


@pytest.fixture(scope="module")
def tuned(world):
    """The model that SFT leaves, as an artifact."""
    job = world.sft("sft")
    assert go(Tuning, job) == DONE
    return model_artifact(world.root, load_model(job.parent / "final"), "sft")


@pytest.fixture(scope="module")
def practised(world, tuned) -> Path:
    """An undisturbed run's folder."""
    job = world.rl("rl", tuned)
    assert go(Reinforcement, job) == DONE
    return job.parent


def test_rl_raises_the_heldout_reward(world, tuned, practised):
    """Over eight seeds: one run of this size rises by 0 to 0.4 as luck and the rounding of products have it, with a
    mean of 0.15 to 0.2 and a deviation of 0.1. A policy that learns nothing has a mean of 0 and, of the evaluations'
    samples alone, a deviation of 0.015: the bound lies five of those above it, and two and more of ours below."""
    rises, folders = [], [practised]  # whose seed is the first
    for seed in range(2, 9):
        job = world.rl(f"rl-{seed}", tuned, seed=seed)
        assert go(Reinforcement, job) == DONE
        folders.append(job.parent)
    for folder in folders:
        found = summary(folder)
        assert found["before"]["by_environment"]["larger"]["sampled"] < 0.6
        rises.append(found["rise"]["sampled"]["rise"])
    assert statistics.fmean(rises) > 0.08, rises
    found = summary(practised)
    assert found["responses"] == 20 * 16 * 8
    assert found["rise"]["by_environment"].keys() == found["before"]["by_environment"].keys()
    for name, rise in found["rise"]["by_environment"].items():
        before, after = (found[when]["by_environment"][name] for when in ("before", "after"))
        for kind in ("sampled", "greedy"):
            assert rise[kind]["rise"] == pytest.approx(after[kind] - before[kind])
            assert rise[kind]["interval"][0] <= rise[kind]["rise"] <= rise[kind]["interval"][1]
    updates = read_metrics(practised / "metrics.jsonl", "update")
    assert max(update["disagreement"] for update in updates) < 1e-4
    assert updates[-1]["ptx_loss"] < updates[0]["ptx_loss"]


@pytest.mark.parametrize("after", [3, 13])
def test_a_killed_rl_run_ends_with_the_same_bytes(world, tuned, practised, monkeypatch, after):
    job = world.rl(f"rl-cut-{after}", tuned)
    cut_after(monkeypatch, after)
    with pytest.raises(Cut):
        go(Reinforcement, job)
    monkeypatch.undo()
    assert go(Reinforcement, job) == DONE
    assert finals(job.parent) == finals(practised)


def test_sigterm_writes_a_checkpoint_and_says_preempted(world, tuned, practised, monkeypatch):
    job = world.rl("rl-asked", tuned)
    real, done = Trainer.accumulate, 0

    def ask(*arguments):
        nonlocal done
        done += 1
        if done == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    monkeypatch.setattr(Trainer, "accumulate", ask)
    assert go(Reinforcement, job) == PREEMPTED
    assert json.loads((job.parent / "preempted.json").read_text()) == {"step": 3}
    assert not (job.parent / "summary.json").exists()
    monkeypatch.undo()
    assert go(Reinforcement, job) == DONE
    assert not (job.parent / "preempted.json").exists()
    assert finals(job.parent) == finals(practised)


def test_sigterm_is_heard_where_nothing_is_learned(world, tuned, monkeypatch):
    """All groups dull, and neither text nor dialogues beside them: no update hears of it."""
    real, played = Practice.iterate, []

    def ask(*given):
        played.append(1)
        if len(played) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*given)

    monkeypatch.setattr(Practice, "iterate", ask)
    monkeypatch.setattr(rollout.Group, "informative", property(lambda group: False))
    changes = {"iterations": 3, "prompts": 2, "ptx_weight": 0, "evaluate_samples": 1}
    job = world.rl("rl-nothing", tuned, **changes)
    assert go(Reinforcement, job) == PREEMPTED
    assert json.loads((job.parent / "preempted.json").read_text()) == {"step": 2}


def test_another_configuration_does_not_take_up_a_run(world, tuned, monkeypatch, capsys):
    job = world.rl("rl-other", tuned)
    cut_after(monkeypatch, 3)
    with pytest.raises(Cut):
        go(Reinforcement, job)
    monkeypatch.undo()
    assert go(Reinforcement, world.rl("rl-other", tuned, tau=0.5)) == FAILED
    assert "was trained with another configuration" in capsys.readouterr().err


def test_every_step_has_a_prompt():
    with pytest.raises(ValueError, match="updates = 5: each needs a prompt"):
        RlConfig(prompts=4, updates=5)


@pytest.mark.parametrize("text", [0.0, 0.1])
def test_an_iteration_of_fewer_groups_than_steps_takes_fewer(world, tuned, monkeypatch, text):
    """Pauses leave an iteration with any number of groups; a step without one has no attention logits to clip by."""
    real, steps = Practice.iterate, []

    def few(*given):
        groups, drawn, left = real(*given)
        return sorted(groups, key=lambda group: not group.informative)[:1], drawn, left

    apply = Trainer.apply
    monkeypatch.setattr(Practice, "iterate", few)
    monkeypatch.setattr(Trainer, "apply", lambda trainer, *given: steps.append(trainer.done) or apply(trainer, *given))
    changes = {"iterations": 3, "prompts": 8, "updates": 4, "ptx_weight": text, "evaluate_samples": 1}
    assert go(Reinforcement, world.rl(f"rl-few-{text}", tuned, **changes)) == DONE
    assert steps == [0, 1, 2]


def test_what_a_refill_replaced_is_told_of_and_not_learned_from(world, tuned, monkeypatch):
    """Else curves, records and the rate of tokens were of those prompts alone that something is learned from."""
    real, update, played, learned = Practice.iterate, Reinforcement._update, [], []

    def dull(*given):
        groups, drawn, left = real(*given)
        played.extend([groups, drawn])
        return groups, drawn, left

    def keep(objective, groups, *given):
        learned.extend(groups)
        return update(objective, groups, *given)

    monkeypatch.setattr(Practice, "iterate", dull)
    monkeypatch.setattr(Reinforcement, "_update", keep)
    changes = {"iterations": 1, "prompts": 16, "refill": 8, "responses": 2, "evaluate_samples": 1}
    job = world.rl("rl-refilled", tuned, **changes, record={"prompts": 99})
    assert go(Reinforcement, job) == DONE
    groups, drawn = played
    assert len(groups) == 16 < len(drawn)
    assert learned == groups
    (line,) = read_metrics(job.parent / "metrics.jsonl", "update")
    right = statistics.fmean(score for group in drawn for score in group.scores)
    assert (line["responses"], line["right"]) == (2 * len(drawn), pytest.approx(right))
    assert summary(job.parent)["responses"] == 2 * len(drawn)
    assert summary(job.parent)["response_tokens"] == sum(one.written for group in drawn for one in group.responses)
    assert pq.read_metadata(job.parent / "rollouts" / "practice-000001.parquet").num_rows == 2 * len(drawn)


@pytest.mark.parametrize("learns", ["as ever", "from no group", "and all are paused"])
def test_a_generator_that_disagrees_stops_the_run(world, tuned, monkeypatch, capsys, learns):
    """The trainer must see the log-probabilities that the samples were drawn with, even where it learns from none."""
    real = rollout.Player._play

    def skewed(player, pairs):
        real(player, pairs)
        for _, episode in pairs:
            episode.log_probs = [value - 0.5 for value in episode.log_probs]

    monkeypatch.setattr(rollout.Player, "_play", skewed)
    changes = {"iterations": 2, "evaluate_samples": 1}
    if learns == "from no group":
        monkeypatch.setattr(rollout.Group, "informative", property(lambda group: False))
    if learns == "and all are paused":
        monkeypatch.setattr(rollout.Player, "_judged", lambda player, work: None)
        monkeypatch.setattr(Reinforcement, "measure_first", lambda objective: False)
        changes["segment"] = 1
    job = world.rl(f"rl-skewed {learns}", tuned, **changes)
    assert go(Reinforcement, job) == FAILED
    assert "differ from the trainer's" in capsys.readouterr().err
    assert not (job.parent / "final").exists()


def test_what_is_paused_is_compared_by_the_routes_it_was_drawn_with(world, tuned, monkeypatch):
    """In bfloat16 other routes would differ by more than is allowed, and end the run."""
    real, seen = train.compared, []

    def look(trainer, parts):
        seen.extend(parts)
        return real(trainer, parts)

    monkeypatch.setattr(train, "compared", look)
    monkeypatch.setattr(rollout.Player, "_judged", lambda player, work: None)
    monkeypatch.setattr(Reinforcement, "measure_first", lambda objective: False)
    monkeypatch.setattr(Reinforcement, "evaluates", lambda objective, number: False)
    monkeypatch.setattr(Reinforcement, "summary", lambda objective: {})
    changes = {"iterations": 2, "prompts": 2, "segment": 1, "replay_routing": True}
    assert go(Reinforcement, world.rl("rl-routes", tuned, **changes)) == DONE
    assert [part.experts_BSLK is not None for part in seen] == [True, True]


def test_the_copy_that_plays_is_gone_when_the_policy_learns(world, tuned, monkeypatch):
    """The plan of memory counts on it: a whole model on each rank, where they share experts or INT4 rounds them."""
    accumulate, made, alive = Trainer.accumulate, [], []

    def copied(trainer, model):
        policy = copy.deepcopy(model)
        made.append(weakref.ref(policy))
        return policy

    def learn(trainer, parts):
        alive.append(sum(each() is not None for each in made))
        return accumulate(trainer, parts)

    monkeypatch.setattr(Trainer, "whole", copied)
    monkeypatch.setattr(Trainer, "accumulate", learn)
    changes = {"iterations": 2, "prompts": 4, "sets": {"critique": 5}, "critic": {"comparisons": 2}, "environments": {}}
    assert go(Reinforcement, world.rl("rl-copies", tuned, evaluate_samples=1, evaluate_prompts=2, **changes)) == DONE
    assert alive == [0, 0]
    assert len(made) >= 4


def test_pretraining_text_is_drawn_as_its_mix_says(world, tuned, capsys):
    assert go(Reinforcement, world.rl("rl-mix", tuned, ptx_mix={"math": 1.0})) == FAILED
    assert "the mix asks for 'math'" in capsys.readouterr().err, "there is nothing but web"


@pytest.mark.parametrize("waits", [True, False])
def test_an_iteration_says_how_long_it_waited_for_verdicts(world, tuned, monkeypatch, waits):
    """Under `timing`, as all that the clock says. Nothing but the verdicts is left to be done when the last comes."""
    real, wait, looked = ExactAnswer.answer, episodes.wait, threading.Event()

    def waiting(*given, **how):
        looked.set()
        return wait(*given, **how)

    def late(environment, problem, reply):
        if waits:
            assert looked.wait(60), "nobody waits for it"
        time.sleep(0.05)
        return real(environment, problem, reply)

    monkeypatch.setattr(ExactAnswer, "waits", waits)
    monkeypatch.setattr(ExactAnswer, "answer", late)
    monkeypatch.setattr(episodes, "wait", waiting)
    changes = {"iterations": 1, "prompts": 1, "responses": 2, "evaluate_samples": 1, "evaluate_prompts": 1}
    job = world.rl(f"rl-waits {waits}", tuned, **changes)
    assert go(Reinforcement, job) == DONE
    (update,) = read_metrics(job.parent / "metrics.jsonl", "update")
    timing = update["timing"]
    assert 0 < timing["idle_seconds"] < timing["seconds"] if waits else timing["idle_seconds"] == 0


def test_a_job_without_an_input_says_which(world, capsys):
    job = write_job(world.root / "lacking", RL, {"dialogues": world.dialogues, "tokenizer": world.tokenizer})
    assert go(Reinforcement, job) == FAILED
    assert "no input 'sft'" in capsys.readouterr().err


EVERYTHING = {
    **{"iterations": 5, "prompts": 8, "responses": 4, "segment": 1, "refill": 4, "updates": 2, "reset_optimizer": True},
    **{"sets": {"instructions": 8, "safety": 6, "critique": 6}, "environments": {}, "critic": {"comparisons": 2}},
    **{"rewards": {"budget": 6, "length_weight": 0.1, "length_from": 0.5}, "temperature": [1.2, 0.8]},
    **{"correction": 2.0, "replay_routing": True, "evaluate_samples": 1, "evaluate_prompts": 2, "evaluate_every": 2},
    **{"record": {"every": 1}, "run": {"checkpoint_every": 1}},
}


def test_a_run_with_all_of_it_that_is_killed_ends_with_the_same_bytes(world, tuned, monkeypatch):
    """Paused responses are part of a checkpoint, one token of a reply an iteration, and so is what they are compared
    with; killed between the two updates of an iteration, and once more behind them."""
    whole, cut = (world.rl(name, tuned, **EVERYTHING) for name in ("rl-paused", "rl-paused-cut"))
    assert go(Reinforcement, whole) == DONE
    lines = read_metrics(whole.parent / "metrics.jsonl", "update")
    assert [line["paused"] > 0 for line in lines[:2]] == [True, True]
    for updates in (3, 4):
        cut_after(monkeypatch, updates)
        with pytest.raises(Cut):
            go(Reinforcement, cut)
        monkeypatch.undo()
    assert go(Reinforcement, cut) == DONE
    assert finals(cut.parent) == finals(whole.parent)


@pytest.mark.parametrize("segment", [None, 1])
def test_everything_at_once(world, tuned, segment):
    """Made problems of several turns, the literal objective with its correction, refills, the critic and its loop, and
    pauses with all of it."""
    extras = {
        **{"iterations": 2, "prompts": 12, "responses": 4, "evaluate_samples": 1, "evaluate_prompts": 2},
        **{"objective": "k2", "correction": 2.0, "refill": 6, "temperature": [1.0, 0.8]},
        **{"sets": {"instructions": 12, "safety": 6, "critique": 6}, "environments": {}},
        **{"critic": {"comparisons": 3}, "rewards": {"budget": 6, "length_weight": 0.1, "length_from": 0}},
        **{"evaluate_every": 1, "segment": segment},
    }
    job = world.rl(f"rl-extras-{segment}", tuned, **extras)
    assert go(Reinforcement, job) == DONE
    updates = read_metrics(job.parent / "metrics.jsonl", "update")
    assert [line["temperature"] for line in updates] == [1.0, 0.8]
    assert any("critic_right" in line for line in updates)
    state = load_state(job.parent / "final")["state"]
    tried = sum(count for _, count in state["seen"].values())
    if segment is None:
        assert tried > 2 * 12 * 4, "groups without a difference were replaced by others"
        assert summary(job.parent)["responses"] >= 2 * 12 * 4
    else:
        assert [line["finished"] for line in updates] == [0.0, 1.0], "all are paused at first, and end a policy later"
        assert state["paused"]
    assert summary(job.parent)["before"]["by_environment"].keys() > {"larger", "instructions"}
    measured = [(line["step"], line["split"]) for line in read_metrics(job.parent / "metrics.jsonl", "evaluation")]
    curve = [(step, "development") for step in (0, 1, 2)]
    assert measured == [curve[0], (0, "test"), *curve[1:], (2, "test")]


def test_what_practice_has_cost_is_told_by_its_name():
    found = {"calls": (-0.7, -0.8, -0.6), "luck": (-0.1, -0.3, 0.1), "sort": (0.5, 0.4, 0.6)}
    rises = {name: {"sampled": {"rise": rise, "interval": [low, high]}} for name, (rise, low, high) in found.items()}
    assert fallen(rises) == ["calls (-70 points)"]
