"""Optional: a network for natural language inference says whether a sentence denies the one it stands for.

`alignment.nli.model` names an installed distribution or a folder with one ONNX file, or with `model.safetensors` and
its `config.json`, and a `tokenizer.json`. Nothing is downloaded and nothing of the package is imported. What the
outputs mean is read from `config.json` (`id2label`) or from `alignment.nli.labels`; it is never assumed.
"""

from __future__ import annotations

import importlib.metadata
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from model.engines.engine import EngineError
from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.alignment.words import Match
from tasks.rephrase.config import NLIConfig

TOKENS = 512
"""Longest pair of sentences read, where the model itself sets no limit; what is longer is cut."""
CONTRADICTION = "contradiction"

Run = Callable[[dict[str, np.ndarray]], np.ndarray]
"""Inputs by name, each [1, S] int64 -> logits [labels]."""


class NLIError(EngineError):
    """A model that cannot be used; the message says why and what to do."""


class NLI:
    """The model, loaded once. Every pair goes through alone and on one thread. Safe to call from several threads."""

    def __init__(self, config: NLIConfig) -> None:
        from tokenizers import Tokenizer

        self._config = config
        folder = find(config.model)
        settings = _settings(folder)
        self._labels = _labels(config, settings)
        self._tokenizer = Tokenizer.from_file(str(_only(folder, "tokenizer.json", config.model)))
        self._lock = threading.Lock()
        onnx = sorted(folder.rglob("*.onnx"))
        if len(onnx) > 1:
            raise NLIError(f"`alignment.nli.model`: {config.model} has {len(onnx)} ONNX files; name a folder with one")
        self._run, longest, count = _onnx(onnx[0]) if onnx else _torch(folder, config.model)
        if count is not None and count != len(self._labels):
            raise NLIError(
                f"`alignment.nli.model`: {config.model} has {count} outputs but {len(self._labels)} labels are named "
                f"({', '.join(self._labels)})"
            )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(min(TOKENS, longest or TOKENS))

    def denied(self, premise: str, hypothesis: str) -> float:
        """How likely `hypothesis` contradicts `premise`, from 0 to 1."""
        tokens = self._tokenizer.encode(premise, hypothesis)
        inputs = {
            "input_ids": np.array([tokens.ids], dtype=np.int64),
            "attention_mask": np.array([tokens.attention_mask], dtype=np.int64),
            "token_type_ids": np.array([tokens.type_ids], dtype=np.int64),
        }
        with self._lock:
            logits = np.asarray(self._run(inputs), dtype=np.float64)
        chances = np.exp(logits - logits.max())
        return float(chances[self._labels.index(CONTRADICTION)] / chances.sum())

    def check(self, match: Match) -> Verdict:
        """No sentence denies the one it stands for, asked both ways. The score is 1 less the greatest chance that one
        does."""
        worst, pair = 0.0, ("", "")
        for old, new in sentence_pairs(match):
            one, other = match.source.sentence(old), match.rewrite.sentence(new)
            for premise, hypothesis in ((one, other), (other, one)):
                chance = self.denied(premise, hypothesis)
                if chance > worst:
                    worst, pair = chance, (one, other)
        passed = worst <= self._config.contradiction
        why = "" if passed else f"'{pair[1][:80]}' denies '{pair[0][:80]}' ({worst:.2f})"
        return Verdict("nli", 1 - worst, passed, why)


def sentence_pairs(match: Match) -> list[tuple[int, int]]:
    """(sentence of the source, sentence of the rewrite) where either is the one that most of the other's words have
    their partners in; ascending."""
    votes = np.zeros((len(match.source.sentences), len(match.rewrite.sentences)))
    for old, new, near in match.mutual():
        word, other = match.source.words[old], match.rewrite.words[new]
        votes[word.sentence, other.sentence] += near * word.weight
    if not votes.size:
        return []
    there = {(old, int(votes[old].argmax())) for old in range(votes.shape[0]) if votes[old].any()}
    back = {(int(votes[:, new].argmax()), new) for new in range(votes.shape[1]) if votes[:, new].any()}
    return sorted(there | back)


def find(name: str) -> Path:
    """The folder of an installed distribution's model, or `name` itself where it is a folder."""
    if Path(name).is_dir():
        return Path(name)
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        raise NLIError(
            f"`alignment.nli.model`: {name} is neither a folder nor an installed distribution: install it or leave "
            "`alignment.nli` out"
        ) from None
    for file in sorted(files, key=str):
        if file.suffix in (".onnx", ".safetensors"):
            return Path(str(file.locate())).parent
    raise NLIError(f"`alignment.nli.model`: the distribution {name} has neither an ONNX nor a safetensors file")


def _settings(folder: Path) -> dict[str, object]:
    for file in sorted(folder.rglob("config.json")):
        try:
            read = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise NLIError(f"`alignment.nli.model`: {file.name} is no JSON; the model is damaged") from None
        if isinstance(read, dict):
            return read
    return {}


def _labels(config: NLIConfig, settings: dict[str, object]) -> list[str]:
    named = settings.get("id2label")
    if isinstance(named, dict):
        try:
            labels = [str(named[key]).lower() for key in sorted(named, key=int)]
        except ValueError:
            raise NLIError(
                f"`alignment.nli.model`: `id2label` of {config.model} has keys that are no numbers"
            ) from None
    else:
        labels = [label.lower() for label in config.labels]
    if not labels:
        raise NLIError(
            f"`alignment.nli.model`: {config.model} does not say what its outputs mean (no `id2label` in a "
            "config.json): name them in order in `alignment.nli.labels`"
        )
    if labels.count(CONTRADICTION) != 1:
        raise NLIError(
            f"`alignment.nli.model`: the outputs of {config.model} are {', '.join(labels)}, and not exactly one of "
            f"them is `{CONTRADICTION}`"
        )
    return labels


def _only(folder: Path, name: str, model: str) -> Path:
    found = sorted(folder.rglob(name))
    if not found:
        raise NLIError(f"`alignment.nli.model`: {model} has no {name}")
    return found[0]


def _onnx(file: Path) -> tuple[Run, int | None, int | None]:
    """(what runs it, longest input, number of outputs); None where the file leaves it open."""
    try:
        import onnxruntime
    except ImportError:
        raise NLIError(
            "`alignment.nli.model` is an ONNX file and onnxruntime is not installed: `pip install onnxruntime`"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    fixed = [axes.shape[1] for axes in inputs if len(axes.shape) > 1 and isinstance(axes.shape[1], int)]
    count = session.get_outputs()[0].shape[-1]

    def run(given: dict[str, np.ndarray]) -> np.ndarray:
        fed = {axes.name: given[axes.name] for axes in inputs}
        if fixed:
            fed = {name: np.pad(value, ((0, 0), (0, fixed[0] - value.shape[1]))) for name, value in fed.items()}
        return np.asarray(session.run(None, fed)[0])[0]

    return run, min(fixed, default=None), count if isinstance(count, int) else None


def _torch(folder: Path, model: str) -> tuple[Run, int | None, int | None]:
    # Imported here: torch and transformers take seconds that a run without this check must not cost.
    import torch
    from transformers import AutoModelForSequenceClassification

    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        raise NLIError(
            f"`alignment.nli.model`: {model} has neither an ONNX file nor config.json with model.safetensors"
        )
    try:
        network, found = AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise NLIError(f"`alignment.nli.model`: {model} cannot be loaded: {str(error).splitlines()[0]}") from None
    # What the file lacks would be drawn at random.
    if lacking := sorted(map(str, found["missing_keys"])):
        raise NLIError(f"`alignment.nli.model`: {model} lacks weights ({', '.join(lacking[:3])})")
    network.eval()

    def run(given: dict[str, np.ndarray]) -> np.ndarray:
        kinds = network.config.model_type in ("bert", "deberta-v2", "deberta", "electra")
        names: Sequence[str] = tuple(given) if kinds else ("input_ids", "attention_mask")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                return network(**{name: torch.from_numpy(given[name]) for name in names}).logits[0].numpy()
        finally:
            torch.set_num_threads(threads)

    return run, getattr(network.config, "max_position_embeddings", None), network.config.num_labels
