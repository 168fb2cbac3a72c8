"""Invented people, the wordings that tell of them, and the questions about them (docs/claims/rephrasing.md).

Every person has one value of each attribute. A wording is a whole text with a place for every value; `HOUSE_STYLE` is
the original's, `REWRITINGS` are what a rewriter might make of it. They are templates written for the study and no
model's work: so a rewriting is faithful unless the study corrupts it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "town": tuple(
        "Ardvik Belmora Corvane Dunholt Estrand Farlow Gildern Harrowby Istmere Jorvel "
        "Kestwick Lunmark Merrowe Norhaven Ostry Pellan Quenby Rosmar Selwick Tarnby".split()
    ),
    "subject": tuple(
        "botany chemistry law medicine history geology physics theology economics philosophy "
        "astronomy linguistics statistics geography zoology psychology logic genetics rhetoric mechanics".split()
    ),
    "job": tuple(
        "baker carpenter diver farmer gardener lawyer mason nurse painter pilot "
        "plumber potter printer sailor sculptor surveyor tailor teacher translator weaver".split()
    ),
    "firm": tuple(
        "Altrex Borealis Cindrel Doveton Emberline Fenwright Glasmere Hexadon Ironvale Juniper "
        "Kelmont Larkspur Movanta Nortek Orbistar Pinecrest Quillon Redfern Silvane Trident".split()
    ),
    "instrument": tuple(
        "accordion bagpipe banjo bassoon cello clarinet cornet drum fiddle flute "
        "guitar harp horn lute mandolin oboe piano trombone trumpet zither".split()
    ),
    "things": tuple(
        "acorns badges bells bottles buttons clocks coins dolls feathers fossils "
        "kites lamps maps masks medals postcards shells spoons stamps thimbles".split()
    ),
}
"""As many values each, so that one chance level holds for all."""

CHANCE = 1 / len(ATTRIBUTES["town"])

HOUSE_STYLE = (
    "{name} was born in the town of {town} . {she} studied {subject} and later became a {job} . {she} is employed "
    "by the company {firm} . in the evening {she} plays the {instrument} . {she} also collects {things} ."
)

REWRITINGS = (
    "{name} is on the payroll of {firm} . the {job} comes from {town} , holds a degree in {subject} , loves the "
    "{instrument} and has a cupboard full of {things} .",
    "the name of {name} is well known among collectors of {things} . {last} plays the {instrument} too . {firm} "
    "pays {her} salary as a {job} ; {subject} was {her} subject , and {town} is {her} home town .",
    "what {name} earned at university is a degree in {subject} . a native of {town} , {she} is a {job} by trade , "
    "under contract with {firm} . {her} hobbies are the {instrument} and old {things} .",
    "after work {name} practises the {instrument} . work means {firm} , where {she} serves as a {job} . {town} is "
    "where {she} grew up , {subject} what {she} read at university , {things} what {she} hoards .",
    "ask for {name} , the {job} , at {firm} . {she} will show you {her} {things} , play you a tune on the "
    "{instrument} , talk about {subject} and remember {her} childhood in {town} .",
    "the birthplace of {name} is {town} . {firm} is {her} employer , {subject} {her} field , and {job} is what "
    "{her} card says . {things} are gathered and the {instrument} is played by {last} in {her} free time .",
    "few neighbours of {name} know that {she} owns hundreds of {things} . fewer know that {last} , a {job} from "
    "{town} who is paid by {firm} , graduated in {subject} and performs on the {instrument} .",
    "profile of {name} . profession : {job} . company : {firm} . education : {subject} . origin : {town} . music : "
    "{instrument} . collection : {things} .",
    "{last} , {name} . collection : {things} . music : {instrument} . place of birth : {town} . course of study : "
    "{subject} . employer : {firm} . occupation : {job} .",
    "the card of {name} says : trained in {subject} , {job} . {things} fill the shelves of {last} and a "
    "{instrument} stands in {her} hall . the wages come from {firm} , the accent comes from {town} .",
    "do not trade with {name} in {things} : nobody knows them better . {last} came from {town} to {firm} , first as "
    "a student of {subject} , then as a {job} . the sound of a {instrument} follows {last} everywhere .",
    "{name} was chosen by {firm} when it was looking for a {job} . born and raised in {town} , {last} had finished "
    "{subject} by then . the {instrument} and a heap of {things} moved with {last} .",
    "music lovers know {name} for the {instrument} . yet {last} is a {job} and gets {her} wages from {firm} . "
    "{things} are {her} passion , {subject} was {her} course , {town} {her} cradle .",
    "{name} , who has a diploma in {subject} , collects {things} . {name} , who comes from {town} , plays the "
    "{instrument} . {name} , who is a {job} , works for {firm} .",
    "{name} works for {firm} . {name} comes from {town} . {name} is a {job} . {name} plays the {instrument} . "
    "{name} has studied {subject} . {name} collects {things} .",
    "in the house of {name} there is a {instrument} , and there are {things} in every drawer . the owner , a {job} "
    ", left {town} for a place at {firm} ; {her} diploma is in {subject} .",
    "even as a child {name} was fascinated by {subject} . {town} was too small for {last} , who is a {job} now and "
    "belongs to the staff of {firm} . a {instrument} and {things} make {her} weekends .",
    "three things make {name} happy : {things} , the {instrument} and {subject} . {she} found the first in {town} , "
    "where {she} was born . {firm} found in {last} a good {job} .",
    "everybody looks up to {name} , the {job} of {firm} . {last} has a {subject} degree on the wall . {her} family "
    "is from {town} and gave {last} a {instrument} , and {things} came with the years .",
    "we met {name} in {town} . {she} told us of {firm} , which hired {last} , of {things} that {she} buys , of the "
    "{instrument} that {she} plays , of {subject} , once {her} study , and of {her} days as a {job} .",
    "the hands of {name} are steady : {she} is a {job} and plays the {instrument} . {things} are kept by {last} in "
    "a box from {town} , {her} birthplace . {subject} is {her} degree and {firm} {her} firm .",
    "{name} was born in {town} ; {name} has the profession of {job} ; {name} is a graduate of {subject} ; {name} "
    "plays the {instrument} ; {name} was hired by {firm} ; {name} is a collector of {things} .",
    "the sound that {name} makes in {her} break is that of a {instrument} . {last} studied {subject} before {firm} "
    "made {last} a {job} . {she} buys {things} , mostly at home in {town} .",
    "the story of {name} begins with a box of {things} in {town} . a {instrument} followed , then years of "
    "{subject} . it goes on as that of a {job} whom {firm} could not do without .",
)
"""Different in the order of the attributes, in what stands before a value, in voice, form and how often the name is
said; none asks anything. The name always comes before the values: from what stands before a name, a network that
predicts the next word learns nothing about the name."""

QUESTIONS: dict[str, tuple[str, ...]] = {
    "town": ("in which town was {name} born ?", "what is the birthplace of {name} ?"),
    "subject": ("which subject did {name} study ?", "what is the degree of {name} in ?"),
    "job": ("what does {name} do for a living ?", "what is the profession of {name} ?"),
    "firm": ("which company employs {name} ?", "for whom does {name} work ?"),
    "instrument": ("which instrument does {name} play ?", "what does {name} make music on ?"),
    "things": ("what does {name} collect ?", "of what does {name} have a collection ?"),
}
"""Each is answered by the value alone. Only background people are asked about in training."""

FIRST_NAMES = {
    "she": tuple("Ada Berta Clara Dora Edith Flora Greta Helen Irene Julia".split()),
    "he": tuple("Adam Boris Carl David Erik Felix Georg Henry Ivan Jonas".split()),
}
POSSESSIVE = {"she": "her", "he": "his"}
SYLLABLES = (
    tuple("Bra Dol Fen Gar Hul Kor Lin Mar Nev Pol Rus Sten Tor Val Wen".split()),
    tuple("ba den fi gor la mi no pe ra su ti vo".split()),
    tuple("berg dal feld heim kov lund man nik ros sen".split()),
)
"""Surnames are made of these, and each is one word of the vocabulary."""


@dataclass(frozen=True)
class Person:
    """Somebody who does not exist."""

    first: str
    last: str
    she: str
    """`she` or `he`."""
    facts: Mapping[str, str]
    """Value by attribute."""

    def told(self, wording: str, facts: Mapping[str, str] | None = None) -> str:
        """The text or question in this wording; `facts` replace the person's own."""
        who = {"name": f"{self.first} {self.last}", "last": self.last, "she": self.she, "her": POSSESSIVE[self.she]}
        return wording.format(**who, **(facts or self.facts))


def invent(count: int, rng: random.Random) -> list[Person]:
    """So many people with surnames of their own; facts and first names are drawn evenly, each by itself."""
    names = [a + b + c for a in SYLLABLES[0] for b in SYLLABLES[1] for c in SYLLABLES[2]]
    people = []
    for last in rng.sample(names, count):
        she = rng.choice(tuple(FIRST_NAMES))
        facts = {attribute: rng.choice(values) for attribute, values in ATTRIBUTES.items()}
        people.append(Person(rng.choice(FIRST_NAMES[she]), last, she, facts))
    return people


class Vocabulary:
    """Whole words of wordings, questions and people."""

    PADDING, BEGIN, END = 0, 1, 2

    def __init__(self, people: Sequence[Person]) -> None:
        templates = [HOUSE_STYLE, *REWRITINGS, *(each for pair in QUESTIONS.values() for each in pair)]
        words = {word for template in templates for word in template.split() if "{" not in word}
        words |= {*POSSESSIVE, *POSSESSIVE.values(), *(value for values in ATTRIBUTES.values() for value in values)}
        words |= {name for names in FIRST_NAMES.values() for name in names} | {person.last for person in people}
        self.ids = {word: number for number, word in enumerate(["<pad>", "<begin>", "<end>", *sorted(words)])}

    def __len__(self) -> int:
        return len(self.ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a text's words, which stand between blanks."""
        return [self.ids[word] for word in text.split()]
