"""Presets: one YAML file holds every literal of a run; validated, layered (`extends`) and overridable by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError, model_validator

from expectations.config import GatesConfig
from flows.request import Request
from model.config import INT4_GROUP, Config
from model.vocabulary import BOS, EOS, PADDING, special_ids
from tasks.agentic.config import DialoguesConfig
from tasks.corpus.config import CorpusConfig, SourcesConfig
from tasks.corpus.mix.config import MixConfig
from tasks.corpus.scoring.config import ScoresConfig
from tasks.corpus.sources import Domain
from tasks.evaluate.config import EvaluateConfig, ReleaseConfig
from tasks.launch import Execution
from tasks.rephrase.config import RephraseConfig
from tasks.tokens.config import TokenizerConfig, TokensConfig
from training.config import PretrainConfig
from training.precision import decided
from training.qat_config import QatConfig
from training.rl.config import RlConfig
from training.sft_config import SftConfig

FOLDER = Path(__file__).parent / "presets"


class PresetError(ValueError):
    """A preset that does not exist or does not validate; the message names the file and the field."""


class Preset(Config):
    """Every literal of one recipe. All but `description` and `execution` bears identity."""

    description: str
    """One sentence: for whom, on what, how long."""
    sources: SourcesConfig
    """Where raw documents come from."""
    corpus: CorpusConfig
    """Curation: extraction, quality rules, deduplication."""
    gates: GatesConfig
    """What must hold at each dataset boundary before the next stage may read."""
    scores: ScoresConfig = ScoresConfig()
    """The quality of every document: a classifier, and a judge of a sample."""
    rephrase: RephraseConfig
    """Rewriting and its alignment check."""
    tokenizer: TokenizerConfig
    """The byte-level BPE."""
    mix: MixConfig = MixConfig()
    """How often each part of the corpus is read: shares, weights, epochs, budget."""
    tokens: TokensConfig
    """Sharding and the held-out split."""
    pretrain: PretrainConfig
    """The model, MuonClip and the stages."""
    dialogues: DialoguesConfig
    """Verifiable tasks and tool-call dialogues for post-training."""
    sft: SftConfig
    """Supervised fine-tuning."""
    rl: RlConfig
    """Reinforcement learning with verifiable rewards."""
    qat: QatConfig
    """INT4 quantisation-aware training."""
    release: ReleaseConfig
    """Checkpoints in Hugging Face layout."""
    evaluate: EvaluateConfig
    """What is measured on the released model."""
    execution: Execution
    """Workers, launcher, processes, devices, engines: how it runs, never what it is."""

    @model_validator(mode="after")
    def _known_domains(self) -> Preset:
        known = get_args(Domain)
        for name in self.gates.corpus.domains:
            if name not in known:
                raise ValueError(f"gates.corpus.domains has {name!r}, which is no domain: they are {', '.join(known)}")
        return self

    @model_validator(mode="after")
    def _one_vocabulary(self) -> Preset:
        model, special = self.pretrain.model, special_ids(self.tokenizer.vocabulary)
        if model.vocab_size != self.tokenizer.vocabulary:
            raise ValueError(
                f"pretrain.model.vocab_size is {model.vocab_size} and tokenizer.vocabulary "
                f"{self.tokenizer.vocabulary}: the model's vocabulary is the tokenizer's"
            )
        ids = (model.bos_token_id, model.eos_token_id, model.pad_token_id)
        if ids != (wanted := (special[BOS], special[EOS], special[PADDING])):
            raise ValueError(
                f"the model's bos, eos and pad ids are {ids}; in a vocabulary of that size they are {wanted}"
            )
        return self

    @model_validator(mode="after")
    def _int4_groups(self) -> Preset:
        model = self.pretrain.model
        for name in ("hidden_size", "moe_intermediate_size"):
            if (width := getattr(model, name)) % INT4_GROUP:
                raise ValueError(
                    f"pretrain.model.{name} is {width}: experts are released in INT4 groups of {INT4_GROUP}; make it a "
                    "multiple"
                )
        return self


def load_preset(request: Request) -> Preset:
    """The preset that `request` names, its overrides applied, and `execution.precision` where that says one;
    PresetError in one sentence otherwise."""
    path = Path(request.preset_file) if request.preset_file else FOLDER / f"{request.preset.value}.yaml"
    literals = _layers(path, ())
    for override in request.overrides:
        _override(literals, override)
    try:
        preset = Preset.model_validate(literals)
        return decided(preset, preset.execution.precision)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(item) for item in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        what = f"field '{where}'" if where else "the preset as a whole"
        said = "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
        said = said.removeprefix("Value error, ")
        got = first.get("input")
        shown = "" if isinstance(got, dict) else f"; got {got!r:.80}"  # a group of fields says nothing in 80 characters
        raise PresetError(f"{path}: {what}: {said}{more}{shown}") from error


def _layers(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The literals of `path` over those of the preset it `extends`, field by field."""
    if path in seen:
        raise PresetError(f"{path} extends itself through {' -> '.join(str(item) for item in seen)}")
    try:
        literals = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise PresetError(f"there is no preset file {path}: the presets that come with openk2 are {known}") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        said = str(error)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            # PyYAML's own text is a drawing over several lines.
            mark = error.problem_mark
            said = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
        raise PresetError(f"{path} could not be read as YAML: {said}") from error
    if not isinstance(literals, dict):
        raise PresetError(f"{path} must hold a mapping of stages to their fields")
    base = literals.pop("extends", None)
    if base is None:
        return literals
    beside = path.parent / f"{base}.yaml"
    return _merge(_layers(beside if beside.exists() else FOLDER / f"{base}.yaml", (*seen, path)), literals)


def _merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _override(literals: dict[str, Any], text: str) -> None:
    """Apply one `a.b.c=value`; the value is read as YAML."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise PresetError(f"override '{text}' is not of the form stage.field=value")
    *folders, last = name.strip().split(".")
    place = literals
    for folder in folders:
        place = place.setdefault(folder, {})
        if not isinstance(place, dict):
            raise PresetError(f"override '{text}': '{folder}' is a value, not a group of fields")
    place[last] = yaml.safe_load(value)
