"""The study of rewriting: the texts of its conditions, a whole study of tiny runs, and what its page says."""

import csv
import dataclasses
import random
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from benchmarks import rephrasing_findings as findings
from benchmarks import rephrasing_study as study
from benchmarks.rephrasing_people import (
    ATTRIBUTES,
    HOUSE_STYLE,
    QUESTIONS,
    REWRITINGS,
    Vocabulary,
    invent,
)
from benchmarks.rephrasing_study import CONDITIONS, READINGS, Condition, Design, Learner, World

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "claims" / "rephrasing.md"
LEAST = Design(studied=6, background=6, updates=3, rows=6, pages=2, warmup=2, width=32, layers=2, heads=2)
BY_NAME = {condition.name: condition for condition in CONDITIONS}


@pytest.fixture(scope="module")
def world() -> World:
    return World(LEAST, seed=1)


def slots(wording: str) -> list[str]:
    return re.findall(r"{(\w+)}", wording)


def test_every_wording_tells_each_fact_once_and_after_the_name() -> None:
    orders = set()
    for wording in (HOUSE_STYLE, *REWRITINGS):
        places = slots(wording)
        order = tuple(place for place in places if place in ATTRIBUTES)
        orders.add(order)
        assert sorted(order) == sorted(ATTRIBUTES)
        assert places.index("name") < places.index(order[0])
        assert "?" not in wording
    assert len(orders) >= 20
    assert len(set(REWRITINGS)) == len(REWRITINGS) > 2 * READINGS


def test_values_tell_their_attribute_and_stand_nowhere_else() -> None:
    """An answer is one word, so that it must mean one thing."""
    values = [value for each in ATTRIBUTES.values() for value in each]
    templates = [HOUSE_STYLE, *REWRITINGS, *(ask for asks in QUESTIONS.values() for ask in asks)]
    assert len(set(values)) == len(values)
    assert {len(each) for each in ATTRIBUTES.values()} == {len(ATTRIBUTES["town"])}
    assert set(values).isdisjoint(word for template in templates for word in template.split())


def test_nobody_is_invented_twice() -> None:
    people = invent(400, random.Random(0))
    assert len({person.last for person in people}) == 400
    assert len(Vocabulary(people)) == len(Vocabulary(people[:1])) + 399


def test_a_condition_changes_the_wording_and_nothing_else(world: World) -> None:
    """Every condition reads the same people in the same order, all of them ten times, and no rewriting comes twice."""
    names = {world.vocabulary.ids[person.last] for person in world.studied}
    order = {}
    for condition in CONDITIONS:
        rows = list(world.readings(condition))
        order[condition.name] = [next(word for word in row if word in names) for row in rows]
        texts = {tuple(row) for row in rows}
        assert len(rows) == READINGS * LEAST.studied
        assert len(texts) == LEAST.studied * max(condition.rewritings, 1)
    assert len({tuple(each) for each in order.values()}) == 1


def test_original_and_rewritings_agree_on_the_facts(world: World) -> None:
    for place, person in enumerate(world.studied):
        for name in ("original x 10", "1 rewriting x 10", "10 rewritings x 1"):
            assert all(told.facts == person.facts for told in world.texts(BY_NAME[name], place))
        one, ten = (world.texts(BY_NAME[name], place) for name in ("1 rewriting x 10", "10 rewritings x 1"))
        assert one == ten[:1]


def test_corruption_takes_the_share_it_says_and_more_of_it_adds_to_less() -> None:
    world = World(dataclasses.replace(LEAST, studied=100), seed=2)
    before: set[tuple[int, int, str]] = set()
    for share in (0.05, 0.1, 0.2):
        wrong = {
            (place, number, name)
            for place, person in enumerate(world.studied)
            for number, told in enumerate(world.texts(Condition("", READINGS, share), place))
            for name, value in told.facts.items()
            if value != person.facts[name]
        }
        values = len(world.studied) * READINGS * len(ATTRIBUTES)
        assert len(wrong) / values == pytest.approx(share, abs=4 * (share * (1 - share) / values) ** 0.5)
        assert before < wrong
        before = wrong


def test_studied_people_are_never_asked_about_in_training(world: World) -> None:
    names = {world.vocabulary.ids[person.last] for person in world.studied}
    rows = world.backdrop(random.Random(0), rows=600, pages=300)
    assert all(names.isdisjoint(row) for row in rows)
    asked = {world.vocabulary.ids["?"]}
    assert sum(not asked.isdisjoint(row) for row in rows) == 300
    assert all(asked.isdisjoint(row) for condition in CONDITIONS for row in world.readings(condition))


def test_background_people_are_asked_about_some_of_their_attributes(world: World) -> None:
    """The others are what shows whether a network that has learned to answer answers what it only read."""
    words = {number: word for word, number in world.vocabulary.ids.items()}
    pages = world.backdrop(random.Random(0), rows=300, pages=300)
    seen = " ".join(words[number] for row in pages for number in row)
    for person, asked in zip(world.background, world.asked, strict=True):
        for attribute, asks in QUESTIONS.items():
            said = [ask for ask in asks if f"{person.told(ask)} {person.facts[attribute]}" in seen]
            assert len(said) == (len(asks) if attribute in asked else 0)


def test_a_fork_goes_on_as_the_trunk_would(world: World) -> None:
    """All conditions begin with the same weights, moments and background."""
    trunk = Learner(world)
    trunk.read_background()
    first, second = trunk.fork(), trunk.fork()
    first.read(CONDITIONS[1])
    second.read(CONDITIONS[1])
    trunk.read(CONDITIONS[1])
    for learner in (first, second):
        assert learner.tokens == trunk.tokens
        for name, weight in learner.model.state_dict().items():
            assert torch.equal(weight, trunk.model.state_dict()[name])


def test_a_network_that_learned_the_facts_by_heart_passes_the_exam() -> None:
    """Two people, told and asked about until their facts are known: the exam counts what the network knows as right."""
    world = World(dataclasses.replace(LEAST, studied=2, background=2, asked=6, updates=250, pages=4), seed=3)
    learner = Learner(world)
    learner.read_background()
    known = study.exam(learner, world.background, lambda _: ())
    assert study.total(list(known.values())).accuracy > 0.9
    assert study.total(list(known.values())).asked == 2 * 12
    swapped = [dataclasses.replace(person, facts=dict.fromkeys(person.facts, "nothing")) for person in world.background]
    told = [[study.Told("", person.facts)] for person in world.background]
    fooled = study.total(list(study.exam(learner, swapped, lambda place: told[place]).values()))
    assert fooled.right == 0
    assert fooled.false / fooled.asked > 0.9


def test_a_whole_study_of_tiny_runs_that_is_stopped_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study.carry_out(LEAST, [1], tmp_path / "whole")
    began, out = time.monotonic(), tmp_path / "stopped"
    assert not study.carry_out(LEAST, [1], out, deadline=began - 1)
    assert not (out / "runs.csv").exists()
    study.append(out / "runs.csv", study.Row(**rows(tmp_path / "whole" / "runs.csv")[0]))
    assert study.carry_out(LEAST, [1], out)
    capsys.readouterr()
    assert study.carry_out(LEAST, [1], out)
    assert capsys.readouterr().out == ""  # what is finished is not run again

    first, second = (rows(folder / "runs.csv") for folder in (tmp_path / "whole", out))
    assert [row["condition"] for row in first] == list(BY_NAME)
    for one, other in zip(first, second, strict=True):
        assert {**one, "cpu_seconds": ""} == {**other, "cpu_seconds": ""}
    assert len({row["updates"] for row in first}) == 1
    text = findings.publish(out)
    assert all(f"| {name} |" in text for name in BY_NAME)
    assert ElementTree.parse(out / "accuracy.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_says_what_the_table_of_runs_says() -> None:
    """Every line of every table of docs/claims/rephrasing.md follows from runs.csv; the claim has all its runs."""
    page, runs = PAGE.read_text(encoding="utf-8"), findings.read_table(PAGE.with_suffix("") / "runs.csv")
    lines = findings.markdown(runs).splitlines()
    assert len(lines) > 10
    assert [line for line in lines if line not in page] == []
    assert len({(run["seed"], run["condition"]) for run in runs}) == len(runs)
    claim = [set(findings.column(runs, name)) for name in ("original x 10", "1 rewriting x 10", "10 rewritings x 1")]
    assert claim[0] == claim[1] == claim[2]
    assert len(claim[0]) >= 3


def test_the_drawing_is_that_of_the_table_of_runs() -> None:
    folder = PAGE.with_suffix("")
    runs = findings.read_table(folder / "runs.csv")
    assert (folder / "accuracy.svg").read_text(encoding="utf-8") == findings.picture(runs)
    assert "rephrasing/accuracy.svg" in PAGE.read_text(encoding="utf-8")
