"""What people ask for in a synthetic domain: words for each operation, and the families of tasks that follow from them.

A family asks for one tool by its arguments, or describes records that one tool finds and another does something with:
the one that matches, or each of them. Arguments are drawn until the calls succeed on the state at hand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from training.rl.worlds.families.family import Data, Family
from training.rl.worlds.families.table import Setting
from training.rl.worlds.synthetic.arguments import valid
from training.rl.worlds.synthetic.bound import Bound
from training.rl.worlds.synthetic.effects import SMALLER
from training.rl.worlds.synthetic.operations import bind
from training.rl.worlds.synthetic.service import function_of, world_of
from training.rl.worlds.synthetic.spec import DomainSpec, ToolSpec
from training.rl.worlds.world import World

DRAWS = 12
"""Draws of arguments before a state counts as one that has no such task."""
MOST_IDS = 5
"""Records that an answer names, or that something is done with one by one."""
Facts = Callable[[Bound, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Wish:
    """How people ask for an operation, and how it is answered.

    Slots: {what} is a record, {entity} and {entities} its kind, {field} and {other} what the tool is about, {values}
    the fields that are given, and each argument of the tool; an answer has the facts besides.
    """

    clauses: tuple[str, ...]
    answer: str
    facts: Facts = lambda bound, result: {}
    """What the last turn must say: only what was asked for. None, or no or many entries: the task is not put."""
    vague: tuple[str, str] = ("", "")
    """An argument that a forgetful user leaves out, and the clause without it."""


def _ids(key: str) -> Facts:
    return lambda bound, result: {
        "ids": [one if isinstance(one, str) else one["id"] for one in result[key or bound.entity.plural]]
    }


def _field(bound: Bound, result: Any) -> Mapping[str, Any]:
    return {"value": result[bound.field.name]}


def _largest(groups: Mapping[str, int]) -> str | None:
    """The group with the largest number; None where two have it."""
    most = [name for name, value in groups.items() if value == max(groups.values())]
    return most[0] if len(most) == 1 else None


WISHES: Mapping[str, Wish] = {
    "create": Wish(
        ("(add|register|enter) a new {entity} and tell me its id: {values}",
         "(create|set up) one more {entity}, {values}, and give me its id"),
        "The new {entity} is {new}.", lambda bound, result: {"new": result["id"]}),
    "get": Wish(
        ("tell me the {field} of {what}", "(look up|check) what {what} has as {field}"),
        "The {field} of {what} is {value}.", _field),
    "find": Wish(
        ("(list|show me|find) the {entities} with {values}", "tell me which {entities} have {values}"),
        "These: {ids}.", _ids("")),
    "search": Wish(
        ('(find|look for) the {entities} whose {field} contains "{query}"',
         'tell me in which {entities} the {field} mentions "{query}"'),
        "I found {ids}.", _ids("matches")),
    "update": Wish(
        ("(change|correct|update) {what}: {values}", "(note|enter) {values} for {what}"),
        "Done: {values} for {what}."),
    "update_all": Wish(
        ("(replace|change) the {field} {old} by {new} on every open {entity} and tell me which they were",
         "give all open {entities} of {field} {old} the {field} {new}, and name them"),
        "Changed: {ids}.", _ids("changed")),
    "delete": Wish(("(delete|remove|erase) {what}", "get rid of {what} for good"), "Deleted: {what}."),
    "count": Wish(
        ("tell me which {field} is the most common among the {entities}",
         "(count|go through) the {entities} by {field} and name the commonest"),
        "Most of them have {value}.", lambda bound, result: {"value": _largest(result["counts"])}),
    "compare": Wish(
        ("tell me which has more {field}, {first} or {second}",
         "(compare|look at) the {field} of {first} and {second} and name the larger one"),
        "{larger} has more.", lambda bound, result: {"larger": result["larger"]}),
    "report": Wish(
        ("tell me for which {other} the {measure} of {field} over the {entities} is highest",
         "(find out|report) which {other} has the highest {measure} of {field} among the {entities}"),
        "It is highest for {value}.", lambda bound, result: {"value": _largest(result["by"])}),
    "rank": Wish(
        ("name the {count} {entities} with the {end} {field}", "list {count} {entities} by {field}, the {end} first"),
        "In this order: {ids}.", _ids("ranked")),
    "move": Wish(("mark {what} as {target}", "(set|move) {what} to {target}"), "Done: {what} is {target}."),
    "next_steps": Wish(
        ("tell me what may become of {what} next", "(look up|check) which statuses may follow for {what}"),
        "It may become {following}.", lambda bound, result: {"following": result["may_become"]}),
    "by_status": Wish(
        ("(list|name) the {entities} that are {status}", "tell me which {entities} have the status {status}"),
        "These are {status}: {ids}.", _ids("ids")),
    "children": Wish(
        ("(list|name) the {entities} of {field} {of}", "tell me which {entities} belong to the {field} {of}"),
        "These: {ids}.", _ids("ids")),
    "relink": Wish(
        ("(assign|give) {what} to the {field} {to}", "make {what} belong to the {field} {to}"),
        "Done: {what} belongs to {to}."),
    "increase": Wish(
        ("(raise|increase) the {field} of {what} by {by}", "add {by} to the {field} of {what}"),
        "The {field} of {what} went up by {by}.", vague=("by", "(raise|increase) the {field} of {what}")),
    "decrease": Wish(
        ("(lower|reduce) the {field} of {what} by {by}", "take {by} off the {field} of {what}"),
        "The {field} of {what} went down by {by}.", vague=("by", "(lower|reduce) the {field} of {what}")),
    "transfer": Wish(
        ("(move|shift) {amount} of the {field} from {source} to {target}",
         "take {amount} off the {field} of {source} and add it to that of {target}"),
        "Done: {amount} went from {source} to {target}."),
    "postpone": Wish(
        ("(postpone|delay) the {field} of {what} by {days} days", "move the {field} of {what} {days} days later"),
        "Done: {days} days later.", vague=("days", "(postpone|delay) the {field} of {what}")),
    "due": Wish(
        ("(list|name) the {entities} whose {field} lies before {before}",
         "tell me which {entities} have their {field} before {before}"),
        "Before {before}: {ids}.", _ids("due")),
    "days_between": Wish(
        ("tell me how many days lie between the {field} of {first} and that of {second}",
         "(count|work out) the days from the {field} of {first} to that of {second}"),
        "There are {days} days between them.", lambda bound, result: {"days": result["days"]}),
    "convert": Wish(
        ("(convert|give me) the {field} of {what} in {unit}", "tell me how many {unit} the {field} of {what} is"),
        "It is {value} {unit}.", lambda bound, result: {"value": result[SMALLER[bound.field.unit][0]]}),
    "check": Wish(
        ("(check|find out) whether the {field} of {what} is above {limit}, and tell me what it is",
         "tell me the {field} of {what}, and whether that is above {limit}"),
        "The {field} is {value}.", _field),
    "estimate": Wish(
        ("(work out|calculate) what {times} times the {field} of {what} comes to",
         "tell me the total if we take the {field} of {what} {times} times"),
        "It comes to {total}.", lambda bound, result: {"total": result["total"]}),
    "tag": Wish(("(put|set) the tag {tag} on {what}", "tag {what} with {tag}"), "Done: {tag} is on {what}.",
                vague=("tag", "put a tag on {what}")),
    "untag": Wish(("take all tags off {what}", "(clear|remove) the tags of {what}"), "Done: no tags on {what}."),
    "note": Wish(('(add|write) the note "{text}" to {what}', 'note on {what}: "{text}"'), "Done: noted on {what}.",
                 vague=("text", "(add|write) a note to {what}")),
    "copy": Wish(
        ("(copy|duplicate) {what} with {values} and tell me the new id",
         "make a copy of {what}, but with {values}, and give me its id"),
        "The copy is {new}.", lambda bound, result: {"new": result["id"]}),
    "merge": Wish(
        ("merge {drop} into {keep}", "(join|combine) {drop} with {keep} so that {keep} stays"),
        "Done: {drop} is part of {keep}."),
}  # fmt: skip
"""By operation. `import` is missing: nobody says a list of records in a sentence."""
FOUND: Mapping[str, tuple[str, str]] = {
    "find": ("the {entity} with {values}", "every {entity} with {values}"),
    "search": ('the {entity} whose {field} contains "{query}"', 'every {entity} whose {field} contains "{query}"'),
    "by_status": ("the only {entity} that is {status}", "every {entity} that is {status}"),
    "children": ("the only {entity} of {field} {of}", "every {entity} of {field} {of}"),
    "rank": (
        "number {count} of the {entities} by {field}, the {end} first",
        "each of the {count} {entities} with the {end} {field}",
    ),
    "due": ("the {entity} whose {field} lies before {before}", "every {entity} whose {field} lies before {before}"),
}
"""How what a tool finds is described: a record, and several."""
BY_FIELDS = ("create", "find", "update", "copy")
"""Operations whose arguments are called after fields: {values} says them."""
GIVEN = ("create", "find")
"""Operations whose optional arguments people use."""


@dataclass(frozen=True)
class Asked:
    """A tool that people ask for, in its world."""

    world: World
    function: str
    operation: str
    bound: Bound

    @property
    def wish(self) -> Wish:
        return WISHES[self.operation]

    @property
    def of_a_record(self) -> bool:
        return "{what}" in self.wish.clauses[0]

    def arguments(self, state: str, draw: random.Random) -> dict[str, Any]:
        """Arguments that fit the schema; without those that nobody would say."""
        parameters = self.world.functions[self.function].parameters
        given = valid(parameters, state, draw)
        if self.operation in GIVEN:
            return {name: value for name, value in given.items() if name != "limit"}
        return {name: value for name, value in given.items() if name in parameters["required"]}

    def facts(self, results: Sequence[Any]) -> Mapping[str, Any]:
        return self.wish.facts(self.bound, results[-1])

    def slots(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the words of a request are filled with."""
        bound, titles = self.bound, [field.title for field in self.bound.fields]
        slots = {
            "entity": bound.entity.title,
            "entities": bound.entity.plural.replace("_", " "),
            "field": titles[0] if titles else "",
            "other": titles[1] if len(titles) > 1 else "",
            "target": bound.target.replace("_", " "),
            "values": _listed(bound, given),
            "end": "highest" if given.get("order") == "descending" else "lowest",
            "unit": SMALLER.get(bound.field.unit, ("",))[0] if titles else "",
            "what": f"{bound.entity.title} {given.get('id')}",
        }
        return slots if self.operation in BY_FIELDS else slots | dict(given)


def _listed(bound: Bound, given: Mapping[str, Any]) -> str:
    """Fields with their values, as people say them."""
    said = []
    bounds = {"min_": "at least", "max_": "at most"}, {"_from": "not before", "_until": "not after"}
    units = {field.name: field.unit for field in bound.entity.fields}
    for name, value in given.items():
        field, how = name, ""
        for mark, words in bounds[0].items():
            field, how = (name.removeprefix(mark), words) if name.startswith(mark) else (field, how)
        for mark, words in bounds[1].items():
            field, how = (name.removesuffix(mark), words) if name.endswith(mark) else (field, how)
        if field not in units:
            field, how = name, ""
        if field in units:
            spoken = ("yes" if value else "no") if isinstance(value, bool) else value
            said.append(" ".join(f"{field.replace('_', ' ')} {how} {spoken} {units[field]}".split()))
    return ", ".join(said)


def setting_of(domain: DomainSpec, tools: Sequence[ToolSpec]) -> Setting:
    """A domain with its tools as what tasks are drawn from; its text is English."""
    world = world_of(domain, [function_of(domain, tool) for tool in tools])
    asked = [
        _asked(world, tool.name, tool.operation, bind(domain, tool.entity, tool.fields, tool.target))
        for tool in tools
        if tool.operation in WISHES
    ]
    families = {one.function: _alone(one) for one in asked}
    draw = random.Random(domain.name)
    for actor in asked:
        finders = [one for one in asked if one.operation in FOUND and one.bound.entity == actor.bound.entity]
        if actor.of_a_record and finders:
            families[f"one {actor.function}"] = _found(draw.choice(finders), actor, False)
            if world.functions[actor.function].writes and actor.operation != "copy":
                families[f"each {actor.function}"] = _found(draw.choice(finders), actor, True)
    about = f", which is {domain.about}" if domain.about else ""
    prompts = (
        "",
        f"You are the assistant of the {domain.title}.",
        f"You work for the {domain.title}{about}. Use the tools; ask where something is missing.",
    )
    return Setting({domain.name: world}, families, ("english",), {"english": prompts})


def _asked(world: World, function: str, operation: str, bound: Bound) -> Asked:
    if operation == "get":  # which shows everything: people ask for one thing
        shown = [field for field in bound.entity.fields if field.kind != "flag"] or bound.entity.fields
        bound = replace(bound, fields=(random.Random(function).choice(shown),))
    return Asked(world, function, operation, bound)


def _alone(asked: Asked) -> Family:
    """One call, with what the user says."""

    def draw(data: Data, draw: random.Random) -> dict[str, Any] | None:
        state = json.dumps(data)
        for _ in range(DRAWS):
            given = asked.arguments(state, draw)
            if not given and asked.operation == "find":
                continue  # a list of everything is no task
            outcome = asked.world.call(state, asked.function, given)
            if outcome.error is None and _sayable(asked.facts([outcome.value])):
                return asked.slots(given) | {"plan": [(asked.function, given)]}
        return None

    return _family(asked, asked.operation, draw)


def _found(finder: Asked, actor: Asked, several: bool) -> Family:
    """A call that finds what the user describes, and one on each record that it found."""

    def draw(data: Data, draw: random.Random) -> dict[str, Any] | None:
        state = json.dumps(data)
        for _ in range(DRAWS):
            given = finder.arguments(state, draw)
            if finder.operation == "rank":
                given["count"] = draw.randint(2, 3) if several else 1
            outcome = finder.world.call(state, finder.function, given)
            ids = finder.facts([outcome.value])["ids"] if outcome.error is None and given else []
            if not (2 <= len(ids) <= MOST_IDS if several else len(ids) == 1):
                continue
            rest = {name: value for name, value in actor.arguments(state, draw).items() if name != "id"}
            plan, after = [(finder.function, given)], outcome
            for one in ids:
                plan.append((actor.function, {"id": one, **rest}))
                after = actor.world.call(after.state, *plan[-1])
                if after.error is not None:
                    break
            if after.error is None and _sayable(actor.facts([after.value])):
                what = FOUND[finder.operation][several].format(**finder.slots(given))
                return actor.slots(rest) | {"what": what, "plan": plan}
        return None

    return _family(actor, f"{finder.operation}.{'each.' if several else ''}{actor.operation}", draw)


def _family(asked: Asked, name: str, draw: Callable[[Data, random.Random], dict[str, Any] | None]) -> Family:
    wish, (missing, vague) = asked.wish, asked.wish.vague
    return Family(
        f"synthetic.{name}",
        asked.world.name,
        draw,
        lambda data, arguments: list(arguments["plan"]),
        wish.clauses,
        (),
        {"english": wish.answer},
        asked.facts,
        {missing: {"english": vague}} if missing else {},
    )


def _sayable(facts: Mapping[str, Any]) -> bool:
    return all(1 <= len(fact) <= MOST_IDS if isinstance(fact, list) else fact is not None for fact in facts.values())
