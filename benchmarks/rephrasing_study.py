"""What rewriting is worth as training data: facts of invented people in one wording or in many, true and corrupted.

    python -m benchmarks.rephrasing_study [--out docs/claims/rephrasing] [--seeds 1,2,3] [--seconds 600] [--tables]

A small K2 network first reads about background people, in many wordings and in questions; from these weights every
condition of `CONDITIONS` goes on with the studied people's texts, each person ten times, and is then asked about them.
Every run is a row of OUT/runs.csv, written when it ends; what stands there is not run again, so that the same command
goes on. After `--seconds` no further run begins. `--tables` runs nothing: tables and drawing of what is there.

What comes of it stands in docs/claims/rephrasing.md; `rephrasing_findings.py` has the tables and the drawing.
"""

from __future__ import annotations

import argparse
import copy
import csv
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import rephrasing_findings as findings
from benchmarks.rephrasing_people import (
    ATTRIBUTES,
    HOUSE_STYLE,
    QUESTIONS,
    REWRITINGS,
    Person,
    Vocabulary,
    invent,
)
from model.config import ModelConfig
from model.precision import speed
from model.transformer import Transformer
from training.engine import Engine, MicroBatch
from training.mesh import Mesh
from training.muonclip import MuonClip

READINGS = 10  # of every studied person's texts, whatever the condition: the report's ten
IGNORED = -100
PAUSED = 75  # the exit code of a study that `--seconds` ended


@dataclass(frozen=True)
class Condition:
    """What the studied people's texts are."""

    name: str
    rewritings: int
    """Different rewritings of each person, read in turn; 0 is the original."""
    corrupted: float = 0.0
    """Share of the values in rewritings that are another person's."""


CONDITIONS = (
    Condition("original x 10", 0),
    Condition("1 rewriting x 10", 1),
    Condition("10 rewritings x 1", 10),
    Condition("10 rewritings x 1, 5 % false", 10, 0.05),
    Condition("10 rewritings x 1, 10 % false", 10, 0.10),
    Condition("10 rewritings x 1, 20 % false", 10, 0.20),
)


@dataclass(frozen=True)
class Design:
    """Sizes of the study."""

    studied: int = 60
    """People in the condition's texts alone."""
    background: int = 40
    """People who are told in every wording, and asked about."""
    asked: int = 3
    """Attributes of each background person that training asks about; the others show what a model that has learned to
    answer makes of facts that it only read."""
    updates: int = 300
    """Of the background, before the conditions part."""
    rows: int = 16
    """Of an update; afterwards half of them are about studied people."""
    pages: int = 4
    """Of an update's rows, those of questions; afterwards half as many."""
    questions: int = 4
    """Of a page."""
    length: int = 48
    """Words of a row: one text, or a page of questions."""
    rate: float = 0.01
    """Peak learning rate: reached after `warmup` updates, and falling on a line to a tenth in the last `decay` of the
    condition's own."""
    warmup: int = 20
    decay: float = 0.3
    width: int = 128
    layers: int = 3
    heads: int = 4

    def model(self, vocabulary: int) -> ModelConfig:
        """K2's decoder with latent attention. All layers are dense: nothing here is about experts."""
        head = self.width // self.heads
        return ModelConfig(
            vocab_size=vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            first_k_dense_replace=self.layers,
            intermediate_size=3 * self.width,
            n_routed_experts=1,
            num_experts_per_tok=1,
            moe_intermediate_size=self.width,
            num_attention_heads=self.heads,
            q_lora_rank=None,
            kv_lora_rank=self.width // 2,
            qk_nope_head_dim=head,
            qk_rope_head_dim=head // 2,
            v_head_dim=head,
            max_position_embeddings=self.length,
            bos_token_id=Vocabulary.BEGIN,
            eos_token_id=Vocabulary.END,
            pad_token_id=Vocabulary.PADDING,
        )


# ------------------------------------------------------------------------------------------------------------ the texts


@dataclass(frozen=True)
class Told:
    """One text about a person."""

    wording: str
    facts: Mapping[str, str]
    """The values that it gives, which need not be the person's."""

    def of(self, person: Person) -> str:
        return person.told(self.wording, self.facts)


class World:
    """Everybody and every text of one seed. All conditions draw on the same, in the same order."""

    def __init__(self, design: Design, seed: int) -> None:
        rng = random.Random(f"people/{seed}")
        people = invent(design.studied + design.background, rng)
        self.design, self.seed = design, seed
        self.studied, self.background = people[: design.studied], people[design.studied :]
        self.vocabulary = Vocabulary(people)
        self.asked = [rng.sample(tuple(ATTRIBUTES), design.asked) for _ in self.background]
        self._wordings = [rng.sample(REWRITINGS, READINGS) for _ in self.studied]
        self._false = [[self._slip(person, rng) for _ in range(READINGS)] for person in self.studied]

    def _slip(self, person: Person, rng: random.Random) -> dict[str, tuple[float, str]]:
        """For every value of one rewriting a number, below whose share of corruption it is replaced, and by what: more
        corruption then adds to less."""
        return {
            attribute: (
                rng.random(),
                rng.choice(
                    [each.facts[attribute] for each in self.studied if each.facts[attribute] != value] or [value]
                ),
            )
            for attribute, value in person.facts.items()
        }

    def texts(self, condition: Condition, person: int) -> list[Told]:
        """The different texts about a studied person."""
        facts = self.studied[person].facts
        if not condition.rewritings:
            return [Told(HOUSE_STYLE, facts)]
        told = []
        for wording, slips in list(zip(self._wordings[person], self._false[person], strict=True))[
            : condition.rewritings
        ]:
            changes = {name: value for name, (at, value) in slips.items() if at < condition.corrupted}
            told.append(Told(wording, {**facts, **changes}))
        return told

    def readings(self, condition: Condition) -> Iterator[list[int]]:
        """The rows about studied people: ten times everybody, in ever new orders that all conditions share."""
        rng = random.Random(f"order/{self.seed}")
        for reading in range(READINGS):
            for person in rng.sample(range(len(self.studied)), len(self.studied)):
                told = self.texts(condition, person)
                yield self.row([told[reading % len(told)].of(self.studied[person])])

    def backdrop(self, rng: random.Random, rows: int, pages: int) -> list[list[int]]:
        """Rows about background people: `pages` of questions, the others texts in any wording."""
        told = [rng.choice(self.background).told(rng.choice((HOUSE_STYLE, *REWRITINGS))) for _ in range(rows - pages)]
        return [self.row([text]) for text in told] + [self.row(self._page(rng)) for _ in range(pages)]

    def _page(self, rng: random.Random) -> list[str]:
        page = []
        for _ in range(self.design.questions):
            place = rng.randrange(len(self.background))
            person, attribute = self.background[place], rng.choice(self.asked[place])
            page.append(f"{person.told(rng.choice(QUESTIONS[attribute]))} {person.facts[attribute]}")
        return page

    def row(self, texts: Sequence[str]) -> list[int]:
        """Texts one behind the other, each with its marks of beginning and end."""
        ids = []
        for text in texts:
            ids += [Vocabulary.BEGIN, *self.vocabulary.encode(text), Vocabulary.END]
        if len(ids) > self.design.length:
            raise ValueError(f"{len(ids)} words do not fit in a row of {self.design.length}: raise Design.length")
        return ids


# ---------------------------------------------------------------------------------------------------------- the network


class Learner:
    """The network, its optimizer and what a training step is."""

    def __init__(self, world: World) -> None:
        self.world, design = world, world.design
        self.model = Transformer(design.model(len(world.vocabulary)), seed=world.seed)
        self.engine = Engine(self.model, Mesh(), torch.device("cpu"), speed("cpu").fast, lambda _: None)
        self.optimizer = MuonClip.for_model(self.model)
        self.rng = random.Random(f"background/{world.seed}")
        self.tokens, self.updates, self.loss = 0, 0, 0.0

    def fork(self) -> Learner:
        """Another that goes on from here."""
        twin = Learner(self.world)
        twin.model.load_state_dict(self.model.state_dict())
        twin.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        twin.rng.setstate(self.rng.getstate())
        twin.tokens, twin.updates = self.tokens, self.updates
        return twin

    def read_background(self) -> None:
        """The updates that all conditions have in common."""
        design = self.world.design
        for update in range(design.updates):
            rate = design.rate * min(1.0, (update + 1) / design.warmup)
            self.step(self.world.backdrop(self.rng, design.rows, design.pages), rate)

    def read(self, condition: Condition) -> None:
        """The condition's texts among as many rows of background."""
        design = self.world.design
        own = list(self.world.readings(condition))
        half = design.rows // 2
        for first in range(0, len(own), half):
            rate = design.rate * min(1.0, 0.1 + 0.9 * (1 - first / len(own)) / design.decay)
            self.step(own[first : first + half] + self.world.backdrop(self.rng, half, design.pages // 2), rate)

    def step(self, rows: Sequence[Sequence[int]], rate: float) -> None:
        """One update."""
        ids_BS = padded(rows, Vocabulary.PADDING)
        targets_BS = padded([row[1:] for row in rows], IGNORED, ids_BS.shape[1])
        words = int((targets_BS != IGNORED).sum())

        def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            return model.loss(hidden_BSD, targets_BS), {}

        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        sums = self.engine.train([MicroBatch(ids_BS, loss)])
        self.optimizer.step(max_logits_LH=sums.max_logits_LH)
        self.tokens, self.updates, self.loss = self.tokens + words, self.updates + 1, float(sums.loss)

    @torch.inference_mode()
    def likeliest(self, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> list[list[int]]:
        """At each of a row's places the word that the network holds for the likeliest next one."""
        found = []
        for first in range(0, len(rows), 128):
            some, at = rows[first : first + 128], places[first : first + 128]
            with self.engine.precision():
                hidden_BSD = self.model(padded(some, Vocabulary.PADDING)).hidden_BSD
                for hidden_SD, own in zip(hidden_BSD, at, strict=True):
                    found.append(self.model.logits(hidden_SD[list(own)]).argmax(-1).tolist())
        return found


def padded(rows: Sequence[Sequence[int]], filler: int, length: int = 0) -> Tensor:
    """Rows as one tensor."""
    length = max(length, *map(len, rows))
    return torch.tensor([[*row, *[filler] * (length - len(row))] for row in rows])


# ------------------------------------------------------------------------------------------------------------ the exam


@dataclass
class Tally:
    """Answers counted."""

    asked: int = 0
    right: int = 0
    false: int = 0
    """Answered with a false value that the texts gave."""

    def count(self, answer: str, fact: str, false: set[str]) -> None:
        self.asked, self.right, self.false = (
            self.asked + 1,
            self.right + (answer == fact),
            self.false + (answer in false),
        )

    @property
    def accuracy(self) -> float:
        return self.right / self.asked if self.asked else 0.0


def exam(
    learner: Learner, people: Sequence[Person], told: Callable[[int], Sequence[Told]]
) -> dict[tuple[int, str], Tally]:
    """Every question about every person, by (place of the person, attribute). Right is the value as likeliest word."""
    world = learner.world
    words = {number: word for word, number in world.vocabulary.ids.items()}
    keys = [
        (place, attribute, ask)
        for place in range(len(people))
        for attribute in ATTRIBUTES
        for ask in QUESTIONS[attribute]
    ]
    rows = [world.row([people[place].told(ask)])[:-1] for place, _, ask in keys]
    answers = learner.likeliest(rows, [[len(row) - 1] for row in rows])
    tallies: dict[tuple[int, str], Tally] = {}
    for (place, attribute, _), (answer,) in zip(keys, answers, strict=True):
        fact = people[place].facts[attribute]
        false = {each.facts[attribute] for each in told(place)} - {fact}
        tallies.setdefault((place, attribute), Tally()).count(words[answer], fact, false)
    return tallies


def total(tallies: Sequence[Tally]) -> Tally:
    """All of them together."""
    return Tally(*(sum(getattr(each, one.name) for each in tallies) for one in fields(Tally)))


def recited(learner: Learner, condition: Condition) -> float:
    """Share of the values in each studied person's first text that the network has right, given the text before."""
    world, rows, places, wanted = learner.world, [], [], []
    for place, person in enumerate(world.studied):
        told = world.texts(condition, place)[0]
        row = world.row([told.of(person)])
        values = {world.vocabulary.ids[value] for value in told.facts.values()}
        at = [position for position, word in enumerate(row) if word in values]
        rows.append(row)
        places.append([position - 1 for position in at])
        wanted += [row[position] for position in at]
    found = [word for row in learner.likeliest(rows, places) for word in row]
    return sum(a == b for a, b in zip(found, wanted, strict=True)) / len(wanted)


# ----------------------------------------------------------------------------------------------------------- the study


@dataclass
class Row:
    """One run, as it stands in runs.csv."""

    seed: int
    condition: str
    corrupted: float
    updates: int
    tokens: int
    loss: float
    recited: float
    """Values of the first text, given the text before them."""
    accuracy: float
    """Of all questions about studied people."""
    false: float
    """Share of these questions that a false value of the texts answered."""
    touched: float
    """Share of the studied facts that some text gave falsely."""
    touched_accuracy: float
    touched_false: float
    background: float
    """Accuracy on background facts that training asked about, in the same wordings."""
    only_read: float
    """And on those that it told in all wordings and never asked about."""
    cpu_seconds: float = field(default=0.0)


def run(base: Learner, condition: Condition) -> Row:
    """One condition from the common weights to its row."""
    began, learner, world = time.process_time(), base.fork(), base.world
    learner.read(condition)
    told = [world.texts(condition, place) for place in range(len(world.studied))]
    studied = exam(learner, world.studied, lambda place: told[place])
    touched = [
        tally
        for (place, name), tally in studied.items()
        if any(text.facts[name] != world.studied[place].facts[name] for text in told[place])
    ]
    others = exam(learner, world.background, lambda place: ())
    asked = total([tally for (place, name), tally in others.items() if name in world.asked[place]])
    unasked = total([tally for (place, name), tally in others.items() if name not in world.asked[place]])
    whole, wrong = total(list(studied.values())), total(touched)
    return Row(
        seed=world.seed,
        condition=condition.name,
        corrupted=condition.corrupted,
        updates=learner.updates,
        tokens=learner.tokens,
        loss=round(learner.loss, 4),
        recited=round(recited(learner, condition), 4),
        accuracy=round(whole.accuracy, 4),
        false=round(whole.false / whole.asked, 4),
        touched=round(len(touched) / len(studied), 4),
        touched_accuracy=round(wrong.accuracy, 4),
        touched_false=round(wrong.false / wrong.asked, 4) if wrong.asked else 0.0,
        background=round(asked.accuracy, 4),
        only_read=round(unasked.accuracy, 4),
        cpu_seconds=round(time.process_time() - began, 1),
    )


def carry_out(design: Design, seeds: Sequence[int], out: Path, deadline: float | None = None) -> bool:
    """All runs that runs.csv does not have yet; whether there are none left."""
    path = out / "runs.csv"
    done = {(row["seed"], row["condition"]) for row in findings.read_table(path)} if path.exists() else set()
    for seed in seeds:
        todo = [condition for condition in CONDITIONS if (seed, condition.name) not in done]
        base: Learner | None = None
        for condition in todo:
            if deadline is not None and time.monotonic() > deadline:
                return False
            if base is None:
                base = Learner(World(design, seed))
                base.read_background()
            row = run(base, condition)
            append(path, row)
            print(
                f"seed {seed}, {row.condition}: {row.accuracy:.1%}, background only read {row.only_read:.1%}",
                flush=True,
            )
    return True


def append(path: Path, row: Row) -> None:
    """One more line of runs.csv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(vars(row)), lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerow(vars(row))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/claims/rephrasing"))
    parser.add_argument("--seeds", default="1,2,3,4,5,6", help="worlds, initial weights and orders")
    parser.add_argument("--seconds", type=float, help="begin no further run after so many")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    whole = True
    if not options.tables:
        torch.set_num_threads(1)  # another number rounds differently
        deadline = time.monotonic() + options.seconds if options.seconds else None
        whole = carry_out(Design(), [int(seed) for seed in options.seeds.split(",")], options.out, deadline)
    if not (options.out / "runs.csv").exists():
        parser.error(f"{options.out / 'runs.csv'} is not there: run the study first, without --tables")
    print(findings.publish(options.out))
    return 0 if whole else PAUSED


if __name__ == "__main__":
    sys.exit(main())
