"""What tools do: one row for each operation, with the names and sentences that a grammar gives it.

An operation says which kinds of fields it takes, which arguments that makes, and what it does to a state. A new one is
a function and a row of `OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from training.rl.worlds.synthetic import effects
from training.rl.worlds.synthetic.bound import DATE, Bound, reference
from training.rl.worlds.synthetic.spec import FieldSpec, Kind
from training.rl.worlds.world import integer, one_of, text

Kinds = frozenset[Kind]
Properties = dict[str, Any]
ANY: Kinds = frozenset(("choice", "integer", "date", "flag", "person", "text"))
FILTER: Kinds = frozenset(("choice", "integer", "date", "flag", "person"))
NUMBER: Kinds = frozenset(("integer",))
CHOICE: Kinds = frozenset(("choice",))
DAY: Kinds = frozenset(("date",))
WORDS: Kinds = frozenset(("person", "text"))
LINK: Kinds = frozenset(("reference",))


@dataclass(frozen=True)
class Operation:
    """One kind of tool."""

    verbs: tuple[str, ...]
    """Names of tools: {entity}, {entities}, {0} and {1} for its fields, {target}."""
    sentences: tuple[str, ...]
    """Descriptions, with {service} besides."""
    arguments: Callable[[Bound], Properties]
    """JSON schema of each argument."""
    run: Callable[..., Any]
    """(what it is bound to, the state's data, **arguments) -> a JSON object; it raises RefusalError, or returns."""
    takes: tuple[Kinds, ...] = ()
    """The kinds of the fields that it is about, one for each."""
    more: int = 0
    """So many fields of the last kind may follow."""
    optional: Callable[[Bound], frozenset[str]] = lambda bound: frozenset()
    """Arguments that may be left out."""
    writes: bool = False
    repeatable: bool = True
    """Whether a call that is made twice does its work once, and answers so."""
    fits: Callable[[Bound], bool] = lambda bound: True
    """Whether it makes sense of what it is bound to."""

    def accepts(self, bound: Bound) -> bool:
        """Whether it can be bound so."""
        fields = bound.fields
        most = len(self.takes) + self.more
        if not len(self.takes) <= len(fields) <= most or len(set(fields)) < len(fields):
            return False
        kinds = [*self.takes, *([self.takes[-1]] * self.more if self.takes else [])]
        fit = all(field.kind in wanted for field, wanted in zip(fields, kinds, strict=False))
        return fit and self.fits(bound)


def _filters(bound: Bound) -> Properties:
    made: Properties = {}
    for field in bound.fields:
        if field.kind == "integer":
            made[f"min_{field.name}"] = bound.value_of(field, f"Least {field.title}")
            made[f"max_{field.name}"] = bound.value_of(field, f"Greatest {field.title}")
        elif field.kind == "date":
            made[f"{field.name}_from"] = bound.value_of(field, f"Earliest {field.title}")
            made[f"{field.name}_until"] = bound.value_of(field, f"Latest {field.title}")
        else:
            made[field.name] = bound.value_of(field, f"Only those with this {field.title}")
    return made


def _ids(*names: str) -> Callable[[Bound], Properties]:
    return lambda bound: {name: bound.id_of(f"The {name} {bound.entity.title}") for name in names}


def _values(bound: Bound) -> Properties:
    return {field.name: bound.value_of(field) for field in bound.entity.fields}


def _changes(bound: Bound) -> Properties:
    return {field.name: bound.value_of(field, f"New {field.title}") for field in bound.fields}


def _parent(bound: Bound, what: str) -> dict[str, Any]:
    return reference(bound.domain.entity(bound.field.entity), what)


def _step(bound: Bound) -> dict[str, Any]:
    field = bound.field
    return integer(1, max(1, (field.high - field.low) // 2), f"By how much{f', in {field.unit}' if field.unit else ''}")


def _item(bound: Bound) -> dict[str, Any]:
    fields = _values(bound)
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _loose(bound: Bound) -> frozenset[str]:
    """The fields from the third on may be left out when a record is made; it always says what it refers to."""
    return frozenset(field.name for field in bound.entity.fields[2:] if field.kind != "reference")


def _reachable(bound: Bound) -> bool:
    return any(bound.target in following for following in bound.entity.life.values())


_LIMIT = integer(1, 50, "Most entries of the answer")
_TAG = text("A short tag", 16, "^[a-z0-9-]{1,16}$")
OPERATIONS: Mapping[str, Operation] = {
    "create": Operation(
        ("create_{entity}", "add_{entity}", "register_{entity}", "new_{entity}"),
        ("Adds a {entity} to the {service} and answers with its id.", "Registers a new {entity} in the {service}.",
         "Creates a {entity} record for the {service}; fields that are left out stay empty."),
        _values, effects.create, optional=_loose, writes=True, repeatable=False),
    "import": Operation(
        ("import_{entities}", "add_many_{entities}", "bulk_create_{entities}"),
        ("Adds several {entities} to the {service} in one call, all or none of them.",
         "Takes a list of {entities} into the {service}; one that is wrong refuses the whole list."),
        lambda b: {"items": {"type": "array", "minItems": 1, "maxItems": 3, "items": _item(b),
                             "description": f"The {b.entity.plural.replace('_', ' ')} to add"}},
        effects.import_all, writes=True, repeatable=False),
    "get": Operation(
        ("get_{entity}", "show_{entity}", "read_{entity}", "{entity}_details"),
        ("Shows everything that the {service} knows of one {entity}.", "Reads a {entity} of the {service} by its id.",
         "Gives the full record of a {entity}, its status, tags and notes included."),
        lambda b: {"id": b.id_of()}, effects.get),
    "find": Operation(
        ("find_{entities}", "list_{entities}", "filter_{entities}", "query_{entities}"),
        ("Lists {entities} of the {service}, narrowed by {0} and {1}.",
         "Finds the {entities} with a certain {0} or {1}.",
         "Filters the {entities} of the {service} by {0} and {1}; every filter that is given must hold."),
        lambda b: {**_filters(b), "limit": _LIMIT}, effects.find, (FILTER, FILTER), more=2,
        optional=lambda b: frozenset((*_filters(b), "limit"))),
    "search": Operation(
        ("search_{entities}_by_{0}", "{entities}_matching_{0}", "lookup_{entity}_by_{0}"),
        ("Searches the {entities} of the {service} for a text in their {0}.",
         "Finds {entities} whose {0} contains what is asked for, whatever its case."),
        lambda b: {"query": text(f"Part of the {b.field.title}", 40)}, effects.search, (WORDS,)),
    "update": Operation(
        ("update_{entity}_{0}", "set_{entity}_{0}", "change_{0}_of_{entity}", "edit_{entity}_{0}"),
        ("Sets the {0} of a {entity} of the {service}.", "Changes what the {service} has noted as {0} of a {entity}.",
         "Corrects the {0} of one {entity}; refused once it has come to its end."),
        lambda b: {"id": b.id_of(), **_changes(b)}, effects.update, (ANY,), more=2, writes=True),
    "update_all": Operation(
        ("replace_{0}_of_{entities}", "change_every_{entity}_{0}", "bulk_update_{entity}_{0}"),
        ("Gives every {entity} of the {service} with one {0} another {0}.",
         "Replaces a {0} by another on all {entities} that are still open."),
        lambda b: {"old": b.value_of(b.field, f"{b.field.title.capitalize()} to replace"),
                   "new": b.value_of(b.field, f"{b.field.title.capitalize()} to put in its place")},
        effects.update_all, (CHOICE,), writes=True, repeatable=False),
    "delete": Operation(
        ("delete_{entity}", "remove_{entity}", "erase_{entity}"),
        ("Deletes a {entity} of the {service} for good; refused while another record refers to it.",
         "Removes one {entity} from the {service} and says how many are left."),
        lambda b: {"id": b.id_of(f"Id of the {b.entity.title} to delete")}, effects.delete, writes=True),
    "count": Operation(
        ("count_{entities}_by_{0}", "{entities}_per_{0}", "{0}_statistics_of_{entities}"),
        ("Counts the {entities} of the {service} by {0}.", "How many {entities} there are of each {0}.",
         "Tells how the {entities} of the {service} are spread over {0}."),
        lambda b: {}, effects.count, (CHOICE,)),
    "compare": Operation(
        ("compare_{entity}_{0}", "which_{entity}_has_more_{0}", "{0}_difference_of_{entities}"),
        ("Compares two {entities} of the {service} by their {0}.",
         "Says which of two {entities} has the larger {0}, and by how much."),
        _ids("first", "second"), effects.compare, (NUMBER,)),
    "report": Operation(
        ("report_{0}_by_{1}", "{entity}_{0}_by_{1}", "summarise_{entity}_{0}_by_{1}"),
        ("Reports sum, average, least or greatest {0} of the {entities} for each {1}.",
         "Summarises the {0} of all {entities} of the {service}, grouped by {1}."),
        lambda b: {"measure": one_of(("sum", "average", "least", "greatest"), f"What to say of {b.field.title}")},
        effects.report, (NUMBER, CHOICE)),
    "rank": Operation(
        ("top_{entities}_by_{0}", "rank_{entities}_by_{0}", "{entities}_ordered_by_{0}"),
        ("Ranks the {entities} of the {service} by {0}.", "Names the {entities} with the most or the least {0}."),
        lambda b: {"count": integer(1, 20, "How many to name"),
                   "order": one_of(("ascending", "descending"), "Which come first")},
        effects.rank, (NUMBER,)),
    "move": Operation(
        ("mark_{entity}_{target}", "set_{entity}_{target}", "{entity}_to_{target}"),
        ("Marks a {entity} of the {service} as {target}, where its present status allows that.",
         "Moves one {entity} on to the status {target}; refused from a status that does not lead there."),
        lambda b: {"id": b.id_of(), "reason": text("Why, for the record")}, effects.move,
        optional=lambda b: frozenset({"reason"}),
        writes=True, fits=_reachable),
    "next_steps": Operation(
        ("next_steps_of_{entity}", "possible_{entity}_statuses", "{entity}_options"),
        ("Says what a {entity} of the {service} may become next.",
         "Lists the statuses that may follow for one {entity}."),
        lambda b: {"id": b.id_of()}, effects.next_steps),
    "by_status": Operation(
        ("{entities}_by_status", "list_{entities}_with_status", "{entities}_in_status"),
        ("Lists the ids of all {entities} of the {service} that have a status.",
         "Which {entities} are at a certain point of their life."),
        lambda b: {"status": one_of(tuple(b.entity.life), f"Status of the {b.entity.title}")}, effects.by_status),
    "children": Operation(
        ("{entities}_of_{0}", "list_{entities}_for_{0}", "{0}_{entities}"),
        ("Lists the {entities} that belong to one {0} of the {service}.", "Which {entities} refer to a given {0}."),
        lambda b: {"of": _parent(b, f"Id of the {b.field.title}")}, effects.children, (LINK,)),
    "relink": Operation(
        ("assign_{entity}_to_{0}", "change_{0}_of_{entity}", "transfer_{entity}_to_{0}"),
        ("Assigns a {entity} of the {service} to another {0}.", "Makes a {entity} belong to a different {0}."),
        lambda b: {"id": b.id_of(), "to": _parent(b, f"Id of the new {b.field.title}")}, effects.relink,
        (LINK,), writes=True),
    "increase": Operation(
        ("increase_{entity}_{0}", "raise_{0}_of_{entity}", "add_to_{entity}_{0}"),
        ("Increases the {0} of a {entity} of the {service}, up to what is allowed.",
         "Adds to the {0} of one {entity}; refused beyond its greatest value."),
        lambda b: {"id": b.id_of(), "by": _step(b)}, effects.adjust(1), (NUMBER,), writes=True,
        repeatable=False),
    "decrease": Operation(
        ("decrease_{entity}_{0}", "lower_{0}_of_{entity}", "reduce_{entity}_{0}"),
        ("Decreases the {0} of a {entity} of the {service}, down to what is allowed.",
         "Takes something off the {0} of one {entity}; refused below its least value."),
        lambda b: {"id": b.id_of(), "by": _step(b)}, effects.adjust(-1), (NUMBER,), writes=True,
        repeatable=False),
    "transfer": Operation(
        ("transfer_{0}_between_{entities}", "shift_{0}_between_{entities}", "move_{entity}_{0}"),
        ("Moves some {0} from one {entity} of the {service} to another; the sum stays the same.",
         "Takes {0} off one {entity} and gives it to a second one."),
        lambda b: {**_ids("source", "target")(b), "amount": _step(b)}, effects.transfer, (NUMBER,), writes=True,
        repeatable=False),
    "postpone": Operation(
        ("postpone_{entity}_{0}", "delay_{0}_of_{entity}", "push_back_{entity}_{0}"),
        ("Moves the {0} of a {entity} of the {service} some days later.", "Postpones the {0} of one {entity} by days."),
        lambda b: {"id": b.id_of(), "days": integer(1, 365, "Days later")}, effects.postpone, (DAY,),
        writes=True, repeatable=False),
    "due": Operation(
        ("{entities}_with_{0}_before", "due_{entities}_by_{0}", "{entities}_until_{0}"),
        ("Lists the {entities} of the {service} whose {0} lies before a day, the earliest first.",
         "Which {entities} have their {0} before a given date."),
        lambda b: {"before": text("The day, as YYYY-MM-DD", 10, DATE), "limit": _LIMIT}, effects.due, (DAY,),
        optional=lambda b: frozenset({"limit"})),
    "days_between": Operation(
        ("days_between_{entities}_by_{0}", "{0}_gap_of_{entities}"),
        ("Counts the days between the {0} of two {entities} of the {service}.",
         "Says which of two {entities} has the earlier {0}, and by how many days."),
        _ids("first", "second"), effects.days_between, (DAY,)),
    "convert": Operation(
        ("{entity}_{0}_in_smaller_unit", "convert_{entity}_{0}", "exact_{0}_of_{entity}"),
        ("Gives the {0} of a {entity} of the {service} in the next smaller unit, too.",
         "Converts what is noted as {0} of one {entity} to a smaller unit."),
        lambda b: {"id": b.id_of()}, effects.convert, (NUMBER,), fits=lambda b: b.field.unit in effects.SMALLER),
    "check": Operation(
        ("check_{entity}_{0}", "is_{entity}_{0}_above", "test_{0}_of_{entity}"),
        ("Checks whether the {0} of a {entity} of the {service} is above a limit, and by how much.",
         "Holds the {0} of one {entity} against a limit."),
        lambda b: {"id": b.id_of(), "limit": b.value_of(b.field, f"Limit for the {b.field.title}")},
        effects.check, (NUMBER,)),
    "estimate": Operation(
        ("estimate_{entity}_{0}_total", "quote_{entity}_{0}", "total_{0}_for_{entity}"),
        ("Works out what the {0} of a {entity} of the {service} comes to for a number of them, less a discount.",
         "Multiplies the {0} of one {entity} and takes a discount off, rounded down."),
        lambda b: {"id": b.id_of(), "times": integer(1, 100, "How many"), "discount": integer(0, 60, "Percent off")},
        effects.estimate, (NUMBER,), optional=lambda b: frozenset({"discount"})),
    "tag": Operation(
        ("tag_{entity}", "label_{entity}", "add_tag_to_{entity}"),
        ("Puts a tag on a {entity} of the {service}; five at most.", "Labels one {entity}, so that it is found again."),
        lambda b: {"id": b.id_of(), "tag": _TAG}, effects.tag, writes=True),
    "untag": Operation(
        ("untag_{entity}", "clear_{entity}_tags", "remove_labels_of_{entity}"),
        ("Takes all tags off a {entity} of the {service}.",
         "Clears the labels of one {entity} and says which they were."),
        lambda b: {"id": b.id_of()}, effects.untag, writes=True),
    "note": Operation(
        ("note_on_{entity}", "comment_{entity}", "add_{entity}_note"),
        ("Adds a note to a {entity} of the {service}.", "Writes a remark beside one {entity}; eight at most."),
        lambda b: {"id": b.id_of(), "text": text("The remark", 120)}, effects.note, writes=True,
        repeatable=False),
    "copy": Operation(
        ("copy_{entity}_with_{0}", "duplicate_{entity}_with_{0}", "clone_{entity}_for_{0}"),
        ("Makes a copy of a {entity} of the {service} with another {0}.",
         "Duplicates one {entity} under a new id, with a {0} of its own and its life at the beginning."),
        lambda b: {"id": b.id_of("The one to copy"), **_changes(b)}, effects.copy, (ANY,), more=1,
        writes=True, repeatable=False),
    "merge": Operation(
        ("merge_{entities}_by_{0}", "join_{entities}_{0}", "combine_{entities}_{0}"),
        ("Merges two {entities} of the {service}: their {0} is added up, and the second is deleted.",
         "Joins one {entity} into another and adds its {0} there."),
        _ids("keep", "drop"), effects.merge, (NUMBER,), writes=True),
}  # fmt: skip


def bind(domain: Any, entity: str, fields: tuple[str, ...], target: str) -> Bound:
    """An operation's binding by names. Raises KeyError, naming it, where the domain has no such entity or field."""
    found = domain.entity(entity)
    known: dict[str, FieldSpec] = {field.name: field for field in found.fields}
    return Bound(domain, found, tuple(known[name] for name in fields), target)
