"""Rollouts to look at: what each choice and each detector finds, and that nothing a model wrote does anything."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from flows.inspection import InspectError, Wanted, show
from flows.request import Request
from tasks.artifact import Artifact, Step
from tasks.report import html
from tasks.report.inspect.rollouts import choice
from tasks.report.inspect.rollouts import page as pages
from tasks.report.inspect.rollouts.responses import GROUP, PRACTICE, SAMPLED, Response, by_problem, of, read
from tests.posttraining import Label
from tests.tasks.report import rollouts
from tests.tasks.report.inspect.hostility import CONTROL, Elements


@pytest.fixture(scope="module")
def artifact(tmp_path_factory) -> Artifact:
    root = tmp_path_factory.mktemp("rollouts")
    rollouts.write(root)
    step = Step("rl", Label(name="rl"), str(root))
    files = {f"rollouts/{path.stem}": path for path in sorted((root / "rollouts").iterdir())}
    for key, path in files.items():
        step.adopt(key, path)
    return step.publish({}, files)


@pytest.fixture(scope="module")
def responses(artifact) -> list[Response]:
    return read(artifact.files("rollouts"))


def printed(artifact, *words: str, colour: bool = False, **wanted) -> str:
    """What the command prints."""
    out = io.StringIO()
    system = "truecolor" if colour else None
    console = Console(file=out, width=100, force_terminal=colour, color_system=system, highlight=False)
    show(Request(root="nowhere"), Wanted(("rollouts", *words), uri=artifact.uri, **wanted), console)
    return out.getvalue()


def test_best_worst_and_most_improved(responses):
    assert [one.reply for one in choice.best(responses, 2)] == ["calling\n5", "4"]
    assert choice.worst(responses, 1)[0].reply == rollouts.HOSTILE, "the only one that was paid nothing"
    ((before, after),) = choice.improved(responses, 5)
    assert (before.reply, before.reward, after.reply, after.reward) == ("6", 0.0, "7", 1.0)
    assert choice.improved(of(responses, iteration=0), 5) == [], "nothing to compare with"


def test_environments_that_share_a_problem_are_told_apart(responses):
    """Siblings are those of one prompt, and so is a rise: here one is right as often as before."""
    first, last = (of(responses, kind=SAMPLED, iteration=number) for number in (0, 2))
    same = [replace(one, environment="other", reward=0.0) for one in (first[0], last[0])]
    pairs = choice.improved([*same, *first, *last], 5)
    assert [(before.environment, after.environment) for before, after in pairs] == [("addition", "addition")]
    assert by_problem([*same, *first]) == {("other", first[0].problem): same, ("addition", first[0].problem): first}


def test_choosing_among_many_looks_at_each_a_few_times(responses, monkeypatch):
    first, last = (of(responses, kind=SAMPLED, iteration=number) for number in (0, 2))
    many = [
        replace(one, problem=f"{one.problem}{number}", kind=kind, iteration=number % 2)
        for one, kind in ((first[0], SAMPLED), (last[0], SAMPLED), (last[0], PRACTICE))
        for number in range(200)
    ]
    looked: list[int] = []
    monkeypatch.setattr(choice, "of", lambda among, **wanted: looked.append(len(among)) or of(among, **wanted))
    choice.best(many, 3)
    choice.improved(many, 3)
    assert sum(looked) < 20 * len(many)


@pytest.mark.parametrize(
    ("name", "replies"),
    [
        ("short", {"4"}),
        ("long", {("and so on " * 10).strip()}),
        ("repeated", {("and so on " * 10).strip()}),
        ("everywhere", {"I agree"}),
        ("verdict", {"this answer is correct"}),
        ("collapsed", set()),
    ],
)
def test_each_detector_finds_its_own(responses, name, replies):
    (detector,) = (each for each in choice.DETECTORS if each.name == name)
    assert {one.reply for one in pages.suspects(responses, detector)} == replies


def test_length_that_collapses_while_the_reward_rises_is_suspected(responses):
    """The essays are shortened to what is not half of it."""
    (detector,) = (each for each in choice.DETECTORS if each.name == "collapsed")
    shorter = [one for one in responses if one.iteration == 1 or one.reply in ("4", "I agree")]
    assert {one.reply for one in pages.suspects(shorter, detector)} == {"4", "I agree"}


def test_nothing_that_a_model_wrote_is_markup(artifact):
    page = html.page(pages.page(artifact, read(artifact.files(GROUP)), "", 50))
    elements = Elements()
    elements.feed(page)
    assert "script" not in elements.seen
    assert "&lt;script&gt;" in page
    assert not CONTROL.search(page)
    assert not CONTROL.search(printed(artifact, "worst", count=9))
    assert "␛[2J" in printed(artifact, "worst", colour=True)


def test_tokens_are_shaded_by_their_probability(artifact):
    page = html.page(pages.page(artifact, read(artifact.files(GROUP)), "worst", 1))
    assert '<span class="p4" title="0.01">&lt;</span>' in page, "below 5 %"
    best = html.page(pages.page(artifact, read(artifact.files(GROUP)), "best", 1))
    assert '<span class="p0" title="0.9">c</span>' in best
    assert re.search(r'<div class="turn"><h4>environment</h4><blockquote>[^<]*## Return of', best), "nobody drew it"


def test_the_terminal_shows_rewards_by_source_and_the_reason(artifact):
    assert "over its budget" in printed(artifact)
    shown = printed(artifact, document="sum0", count=9)
    assert "3 responses to it are recorded" in shown
    assert re.search(r"✗ reward -0\.50\s+✗ cut -0\.50", shown)
    assert re.search(r"✓ reward \+1\.00\s+✓ verdict \+1\.00", shown)


@pytest.mark.parametrize(
    ("words", "wanted", "message"),
    [
        (("bset",), {}, "did you mean 'best'"),
        ((), {"environment": "adition"}, "did you mean 'addition'"),
        ((), {"document": "nobody"}, "of a prompt 'nobody' is recorded: transcripts"),
        ((), {"style": "academic"}, "--style is for rewrites: rollouts takes --environment, --document"),
    ],
)
def test_what_is_not_there_is_named(artifact, words, wanted, message):
    with pytest.raises(InspectError, match=message):
        printed(artifact, *words, **wanted)
