"""Hand-written rewrites of which it is known whether they are faithful, and if not, what is wrong with them: the
shipped ones and a user's own, read and checked.

A file is JSON Lines, a source with its rewrites on each line, in one of three formats: whole rewrites (`Written`),
rewrites and small edits of them (`Edited`), or statements in several wordings, right and wrong, from which passages are
composed (`Stated`). docs/calibration.md describes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from model import storage
from model.config import Config

SHIPPED = Path(__file__).with_name("pairs")
SETS = ("test", "dev", "train", "rewriters")
"""What is shipped: `test` to be measured on and never read, `train` for weights, and `dev`, a tenth of what was
written with it, whose failures may be read. `rewriters`: what small models made of sources of `train`, read and
labelled by hand; its ids name model, style and source."""

Part = Literal["test", "dev", "train", "rewriters", "own", "corpus"]

FAITHFUL, NEUTRAL = "faithful", "neutral"
DEFECTS = {
    "number": "a number, date or amount",
    "unit": "a unit",
    "entity": "another person, place or thing",
    "role": "who does what to whom",
    "relation": "before and after, cause and effect, part and whole",
    "comparison": "more and less, first and last, exactly and at least",
    "quantifier": "all, most, some, none",
    "negation": "a denial lost or added, also by a verb",
    "opposite": "an antonym",
    "hedge": "a `may`, a `probably`: lost, added, weakened",
    "attribution": "who says, believes or measured it",
    "cause": "an invented cause, purpose or consequence",
    "time": "order, duration, still or no longer",
    "scope": "a condition or restriction lost, widened or moved",
    "blend": "properties of two things mixed up",
    "part": "half a statement left out",
    "omission": "a statement left out",
    "addition": "a statement that the source does not make",
    "formula": "a sign, exponent, variable or step of mathematics",
    "identity": "a sign, exponent, variable, option or path",
}
"""Kinds of defect, and what is wrong."""
KINDS = {FAITHFUL: "nothing: a rewrite in free wording", NEUTRAL: "nothing: other words for the same", **DEFECTS}


class PairsError(ValueError):
    """A file of pairs that cannot be used; the message says where and why."""


@dataclass(frozen=True)
class Row:
    """A source and one rewrite of it."""

    id: str
    """The record's, and the rewrite's place in it: `en-001/3`."""
    part: Part
    language: str
    domain: str
    kind: str
    """One of KINDS."""
    source: str
    rewrite: str
    wrong: str = ""
    """What is wrong, or was put in other words, for a person."""

    @property
    def faithful(self) -> bool:
        return self.kind in (FAITHFUL, NEUTRAL)


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a character (a surrogate without its partner)") from None
    return text


def _held(text: str) -> str:
    if not text.strip():
        raise ValueError("must hold text")
    return text


def _defect(kind: str) -> str:
    if kind not in DEFECTS:
        raise ValueError(f"there is no kind '{kind:.40}': there are {', '.join(DEFECTS)}")
    return kind


def _edit(kind: str) -> str:
    return kind if kind == NEUTRAL else _defect(kind)


Whole = Annotated[str, AfterValidator(_whole)]
Text = Annotated[Whole, AfterValidator(_held)]


class About(Config):
    """What every format has."""

    id: Text
    """Unlike every other's."""
    language: Text
    """Language of all its texts, such as `en`."""
    domain: Text
    """What it is about, such as `law`."""


class Record(About):
    """What has one source."""

    source: Text
    """The text that is rewritten."""


class Defect(Config):
    """A rewrite with one error."""

    kind: Annotated[str, AfterValidator(_defect)]
    """One of DEFECTS."""
    rewrite: Text
    """The whole rewrite."""
    wrong: Text
    """The error in a few words."""


class Written(Record):
    """A source, faithful rewrites of it, and others with one error each, all written freely."""

    faithful: tuple[Text, ...] = ()
    """Rewrites that lose, add and change nothing."""
    defects: tuple[Defect, ...] = ()
    """Rewrites with one error each."""

    def told(self) -> Iterator[tuple[str, str, str]]:
        """(kind, rewrite, what is wrong) of every rewrite."""
        yield from ((FAITHFUL, rewrite, "") for rewrite in self.faithful)
        yield from ((defect.kind, defect.rewrite, defect.wrong) for defect in self.defects)

    @model_validator(mode="after")
    def _some(self) -> Written:
        if not self.faithful and not self.defects:
            raise ValueError("has no rewrite: give some under `faithful` or `defects`, or under `rewrites` and `edits`")
        return self


class Edit(Config):
    """One stretch of a faithful rewrite replaced."""

    of: int = Field(ge=0)
    """Which rewrite, from 0 on."""
    kind: Annotated[str, AfterValidator(_edit)]
    """One of DEFECTS, or `neutral` where the meaning stays the same."""
    find: str = Field(min_length=1)
    """The stretch; it stands in the rewrite once."""
    put: Whole
    """What stands there instead; nothing for an omission."""
    source: str = ""
    """The stretch of the source whose meaning is changed, lost or kept; nothing for an addition."""

    @property
    def wrong(self) -> str:
        """The edit in words."""
        return f"'{self.find}' became '{self.put}'" if self.put else f"'{self.find}' is left out"


class Edited(Record):
    """A source, faithful rewrites of it, and edits of those that change the meaning or only the wording."""

    rewrites: tuple[Text, ...] = Field(min_length=1)
    """Rewrites that lose, add and change nothing."""
    edits: tuple[Edit, ...] = ()
    """Each makes one more rewrite."""

    def told(self) -> Iterator[tuple[str, str, str]]:
        """(kind, rewrite, what is wrong) of every rewrite."""
        yield from ((FAITHFUL, rewrite, "") for rewrite in self.rewrites)
        for edit in self.edits:
            yield edit.kind, self.rewrites[edit.of].replace(edit.find, edit.put), edit.wrong

    @model_validator(mode="after")
    def _fitting(self) -> Edited:
        for place, edit in enumerate(self.edits):
            if edit.of >= len(self.rewrites):
                raise ValueError(f"edit {place}: there is no rewrite {edit.of} (the first is 0)")
            if (count := self.rewrites[edit.of].count(edit.find)) != 1:
                raise ValueError(f"edit {place}: '{edit.find:.60}' stands in rewrite {edit.of} {count} times, not once")
            if edit.source and (count := self.source.count(edit.source)) != 1:
                raise ValueError(f"edit {place}: '{edit.source:.60}' stands in the source {count} times, not once")
            if edit.put == edit.find:
                raise ValueError(f"edit {place}: `put` is what `find` is")
        return self


class Wrong(Config):
    """A wording of a statement with one error."""

    kind: Annotated[str, AfterValidator(_defect)]
    """One of DEFECTS."""
    text: Text
    """The wording."""


class Statement(Config):
    """What a passage says in one place, in several wordings. Any wording may stand beside any of another statement."""

    of: tuple[int, ...] = Field(min_length=1, max_length=2)
    """Its number, or the numbers of the two statements that it says at once."""
    says: tuple[Text, ...] = Field(min_length=1)
    """Wordings that lose, add and change nothing."""
    defects: tuple[Wrong, ...] = ()
    """Wordings with one error each."""


class Stated(About):
    """A passage as its statements: every choice of wordings makes a source or a rewrite."""

    statements: tuple[Statement, ...]
    """Single ones, numbered from 0 on, each with two wordings at least; then those that say two of them at once."""

    @property
    def single(self) -> dict[int, Statement]:
        """The single statements by number, in order."""
        return dict(sorted((said.of[0], said) for said in self.statements if len(said.of) == 1))

    @property
    def source(self) -> str:
        """The first wordings, one after another."""
        return self.passage([said.says[0] for said in self.single.values()])

    def passage(self, wordings: Sequence[str]) -> str:
        """The wordings joined as the language joins sentences."""
        return ("" if self.language == "zh" else " ").join(wordings)

    def told(self) -> Iterator[tuple[str, str, str]]:
        """(kind, rewrite, what is wrong): further wordings of all statements, then each error among such wordings."""
        single = self.single
        for number in range(1, min(len(said.says) for said in single.values())):
            yield FAITHFUL, self.passage([said.says[number] for said in single.values()]), ""
        for said in self.statements:
            for place, defect in enumerate(said.defects):
                texts = {number: one.says[1 + place % (len(one.says) - 1)] for number, one in single.items()}
                texts |= {**dict.fromkeys(said.of, ""), said.of[0]: defect.text}
                yield defect.kind, self.passage([text for text in texts.values() if text]), defect.text

    @model_validator(mode="after")
    def _numbered(self) -> Stated:
        single = sorted(said.of[0] for said in self.statements if len(said.of) == 1)
        if single != list(range(len(single))) or not single:
            raise ValueError(f"`statements` has the single ones {single}: number them from 0 on, each once")
        for said in self.statements:
            if any(number not in single for number in said.of):
                raise ValueError(f"there is no statement for `of` {list(said.of)}")
            if len(said.of) == 1 and len(said.says) < 2:
                raise ValueError(f"statement {said.of[0]} needs two wordings in `says`, one for either text")
        return self


def load(locations: Sequence[str]) -> list[Row]:
    """The rows of the sets (SETS) or files (paths, globs or fsspec URLs) named. Raises PairsError, naming file and
    line."""
    return [
        Row(f"{record.id}/{place}", part, record.language, record.domain, kind, record.source, rewrite, wrong)
        for record, part in records(locations)
        for place, (kind, rewrite, wrong) in enumerate(record.told())
    ]


def records(locations: Sequence[str]) -> Iterator[tuple[Written | Edited | Stated, Part]]:
    """The records of the sets or files named, each with its part, in the order of the files."""
    places: dict[str, str] = {}
    for location in locations:
        for path in _files(location):
            for number, line in enumerate(_text(path).split("\n"), 1):
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                record = _parse(line, place)
                part = _part(path, location, record.id)
                if location in SETS and part != location:
                    continue
                if record.id in places:
                    raise PairsError(
                        f"{place}: the id '{record.id}' stands in {places[record.id]} too; give it its own"
                    )
                places[record.id] = place
                yield record, part
    if not places:
        raise PairsError(f"no pairs in {', '.join(locations) or 'nothing'}: name a JSONL file that has some")


def half(identity: str) -> Literal["dev", "train"]:
    """Which half a record written for training belongs to: about a tenth is `dev`."""
    return "dev" if int(hashlib.sha256(identity.encode()).hexdigest(), 16) % 10 == 0 else "train"


def _part(path: str, location: str, identity: str) -> Part:
    if location in ("dev", "train"):
        return half(identity)
    if location == "rewriters":
        return "rewriters"
    shipped = storage.is_local(path) and storage.local_path(path).resolve().parent == SHIPPED.resolve()
    return "test" if shipped and Path(path).name.startswith("test-") else "own"


def _files(location: str) -> list[str]:
    if location in SETS:
        files = "train" if location == "dev" else location
        return sorted(map(str, SHIPPED.glob(f"{files}-*.jsonl")))
    return list(storage.matching(location)) if "*" in location else [location]


def _text(path: str) -> str:
    try:
        return storage.read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PairsError(f"{path} is no UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except (OSError, ValueError) as error:
        raise PairsError(f"{path} cannot be read: {error}; `--pairs` takes {', '.join(SETS)} or a file") from None


def _parse(line: str, place: str) -> Written | Edited | Stated:
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise PairsError(f"{place}: no JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise PairsError(f"{place}: no JSON that can be read ({error})") from None
    if not isinstance(found, dict):
        raise PairsError(f"{place}: a record is an object with id, language, domain, source and rewrites")
    try:
        kind = Stated if "statements" in found else Edited if {"rewrites", "edits"} & set(found) else Written
        return kind.model_validate(found)
    except ValidationError as error:
        told = "; ".join(_problem(problem["loc"], problem["msg"]) for problem in error.errors())
        raise PairsError(f"{place}: {told}") from None


def _problem(loc: tuple[int | str, ...], message: str) -> str:
    message = message.removeprefix("Value error, ")
    return f"`{'.'.join(map(str, loc))}`: {message}" if loc else message
