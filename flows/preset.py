"""Presets: one YAML file holds every literal of a run; validated, layered (`extends`) and overridable by field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

from pydantic import ValidationError, field_validator, model_validator

from expectations.config import GatesConfig
from flows.errors import near, refusal
from flows.held import once
from flows.literals import Literals, PresetError, read
from flows.request import Request
from model.config import INT4_GROUP, Config
from model.storage import local_path
from model.vocabulary import BOS, EOS, PADDING, special_ids
from tasks.agentic.config import ENVIRONMENTS, DialoguesConfig
from tasks.agentic.mcp.config import RecordingConfig
from tasks.agentic.synthesis.config import ToolsConfig
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
from training.rl.config import SETS, RlConfig, is_of
from training.sft_config import SftConfig
from training.workload import Workload, chain

FOLDER = Path(__file__).parent / "presets"
OF_SOURCES = (
    ("gates", "corpus"),
    ("gates", "tokens"),
    ("gates", "rewrites", "documents"),
    ("gates", "rewrites", "segments"),
)
"""What a preset expects of the sources that it names. One that names others does not inherit it."""


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
    tools: ToolsConfig = ToolsConfig()
    """Synthetic tools."""
    real_tools: RecordingConfig = RecordingConfig()
    """Real tools that are called for the report; whether their servers are there changes nothing that is trained."""
    dialogues: DialoguesConfig
    """Verifiable tasks and tool-call dialogues for post-training."""
    sft: SftConfig
    """Supervised fine-tuning."""
    rl: RlConfig
    """Reinforcement learning with verifiable rewards."""
    release: ReleaseConfig
    """Checkpoints in Hugging Face layout."""
    evaluate: EvaluateConfig
    """What is measured on the released model."""
    execution: Execution
    """Workers, launcher, processes, devices, engines: how it runs, never what it is."""

    @field_validator("rl")
    @classmethod
    def _fidelity_of_rewrites(cls, rl: RlConfig) -> RlConfig:
        """The check of replies is that of rewrites, unless it says otherwise."""
        if rl.fidelity is None or rl.fidelity.weights:
            return rl
        from tasks.rephrase.alignment.networks import TAUGHT  # torch takes seconds, which other presets are spared

        return rl.model_copy(update={"fidelity": rl.fidelity.model_copy(update={"weights": str(TAUGHT)})})

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

    @model_validator(mode="after")
    def _environments_known(self) -> Preset:
        known = self.dialogues.environments
        for field, names in (("sft.gate", self.sft.gate), ("rl.environments", self.rl.environments)):
            made = self.rl.sets if field == "rl.environments" else {}  # theirs are called after their set: math.roots
            if unknown := [name for name in names if name not in known and name.partition(".")[0] not in made]:
                raise ValueError(
                    f"{field} names {unknown[0]!r}, of which there are no dialogues: they are of {', '.join(known)}; "
                    "add it to dialogues.tasks, or leave it out"
                )
        practised = {
            name: count for name, count in known.items() if self.rl.environments.get(name, not self.rl.environments)
        }
        practised |= self.rl.practised
        if self.rl.prompts > (there := sum(practised.values())):
            raise ValueError(
                f"rl.prompts is {self.rl.prompts:,}, and the problems of {', '.join(practised) or 'no environment'} "
                f"are {there:,}: lower it, or raise train of dialogues.tasks, or rl.sets"
            )
        return self

    @model_validator(mode="after")
    def _budgets_known(self) -> Preset:
        """Also of environments that this preset leaves out: those that extend it may have them."""
        known = (*ENVIRONMENTS, *SETS, "critic")  # of which the critic's own prompts are (training/rl/critic.py)
        for field, budgets in (("sft.budgets", self.sft.budgets), ("rl.rewards.budgets", self.rl.rewards.budgets)):
            for name in budgets:
                if name.partition(".")[0] not in SETS and not any(is_of(one, name) for one in known):
                    raise ValueError(
                        f"{field} has {name!r}, which is the budget of no environment: {near(name, known)}"
                    )
        return self

    @model_validator(mode="after")
    def _mixes_have_sources(self) -> Preset:
        """What training draws from, before hours of other stages lead to one that cannot begin."""
        known = {source.domain for source in self.sources.sources}
        mixes = {"rl.ptx_mix": self.rl.ptx_mix}
        for stage in self.pretrain.stages.stages:
            changed = {f"mix_changes[{at}]": change.mix for at, change in enumerate(stage.mix_changes)}
            mixes |= {f"{name} of stage {stage.name!r}": mix for name, mix in ({"mix": stage.mix} | changed).items()}
        for field, mix in mixes.items():
            for name, weight in (mix or {}).items():
                if weight and (domain := name.partition("/")[0]) not in known | {"*"}:
                    raise ValueError(
                        f"{field} gives {name!r} a weight, and no source is of the domain {domain}: make it 0, or set "
                        f"{field.partition(' ')[0]} to null, which takes the corpus as it is"
                    )
        if unknown := sorted(set(self.mix.domains) - known):
            raise ValueError(
                f"mix.domains has {unknown[0]!r}, and no source is of that domain: leave it out, or add a source"
            )
        return self

    @model_validator(mode="after")
    def _servers_named(self) -> Preset:
        if self.dialogues.servers.train and not self.tools.servers:
            raise ValueError(
                "dialogues.servers.train asks for dialogues with real tools, and tools.servers names no server: add "
                "one (docs/agentic/mcp.md), or make it 0"
            )
        return self

    @model_validator(mode="after")
    def _rows_fit(self) -> Preset:
        """Dialogues into rows, rows and replies into the window that pretraining leaves."""
        rows = {"sft.sequence_length": self.sft.longest}
        if self.rl.dialogue_rows:
            rows["rl.dialogue_sequence_length"] = self.rl.dialogue_sequence_length
        for field, row in rows.items():
            if self.dialogues.max_tokens > row:
                raise ValueError(
                    f"dialogues.max_tokens is {self.dialogues.max_tokens:,} and {field} {row:,}: a dialogue "
                    "lies in one row; lower the first or raise the second"
                )
        window = self.training()[-1].model.max_position_embeddings
        reply = max(self.rl.rewards.budget, *self.rl.rewards.budgets.values(), 0)
        lengths = {
            **rows,
            "sft.text_sequence_length": self.sft.text_sequence_length,
            "rl.ptx_sequence_length": self.rl.ptx_sequence_length,
            # what is sampled has a prompt before it
            "sft.budget": 1 + max(self.sft.budget, *self.sft.budgets.values(), 0),
            "rl.rewards.budget": 1 + reply,
            "evaluate.max_new_tokens": 1 + self.evaluate.max_new_tokens,
        }
        for field, length in lengths.items():
            if length > window:
                raise ValueError(
                    f"{field} takes {length:,} tokens and the base model has a window of {window:,} after its last "
                    "stage: lower it, or raise the yarn_factor of the last of pretrain.stages"
                )
        return self

    @model_validator(mode="after")
    def _ranks_fit(self) -> Preset:
        """Every training stage runs on the same ranks."""
        for stage in self.training():
            stage.require(self.execution.processes * self.execution.nodes, self.execution.device_bytes)
        return self

    def training(self) -> tuple[Workload, ...]:
        """What each training stage asks of its ranks: base, SFT, RL."""
        dialogues = self.dialogues
        return chain(self.pretrain, self.sft, self.rl, dialogues.max_tokens, dialogues.measured)


def load_preset(request: Request) -> Preset:
    """The preset that `request` names, its overrides applied, and `execution.precision` where that says one;
    PresetError in one sentence otherwise."""
    path = local_path(request.preset_file) if request.preset_file else FOLDER / f"{request.preset.value}.yaml"
    literals = _layers(path, ())
    for text in request.overrides:
        literals = literals.changed(text)
    try:
        preset = Preset.model_validate(literals.values)
        return decided(preset, preset.execution.precision)
    except ValidationError as error:
        where = literals.place(error.errors()[0]["loc"]) or str(path)
        told = refusal(error, Preset)
        if error.errors()[0]["loc"] == ("description",):  # the first field of all: the file extends nothing
            told += "; or begin the file with `extends: laptop`"
        raise PresetError(f"{where}: {told}") from error


def _layers(path: Path, seen: tuple[Path, ...]) -> Literals:
    """The literals of `path` over those of the preset it `extends`, field by field."""
    if os.path.realpath(path) in map(os.path.realpath, seen):  # `../here/mine` is one more name of a file
        raise PresetError(f"{path} extends itself through {' -> '.join(str(item) for item in seen)}")
    try:
        literals = once(("preset", path), lambda: read(path))
    except FileNotFoundError:
        raise PresetError(_missing(path)) from None
    if "extends" not in literals.values:
        return literals
    place = literals.place(["extends"])
    base, literals = literals.without("extends")
    if not isinstance(base, str) or not base.strip():
        raise PresetError(f"{place}: `extends` takes the name of one preset, such as `extends: laptop`")
    beside, shipped = path.parent / f"{base}.yaml", FOLDER / f"{base}.yaml"
    # one's own `laptop.yaml` may extend `laptop`
    own = shipped.exists() and os.path.realpath(beside) == os.path.realpath(path)
    below = beside if beside.exists() and not own else shipped
    if not below.exists():
        raise PresetError(f"{place}: there is no preset '{base}'{_known(base)}, nor is there {beside}")
    under = _layers(below, (*seen, path))
    own_sources = literals.values.get("sources")
    if isinstance(own_sources, dict) and "sources" in own_sources:
        for expected in OF_SOURCES:
            under = under.dropping(expected)
    return literals.over(under)


def _missing(path: Path) -> str:
    known = ", ".join(_names())
    return f"there is no preset file {path}: the presets that come with openk2 are {known} (`--preset NAME`)"


def _known(name: str) -> str:
    return f" ({near(name, _names())})"


def _names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))
