"""The release stage: `bf16/` and `int4/` folders in Hugging Face layout with K2's names, verified before publishing.

Each part's key is its place in the folder (`int4/model.safetensors`). `checkpoint_folder` lays the parts of a published
release out under those names, for transformers, vLLM and `openk2 generate`.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model.attention import LATENT_EPS
from model.cache import cache_folder
from model.config import ModelConfig, parameter_count
from model.convert import as_served, write_json
from model.storage import is_local, local_path
from model.transformer import Transformer
from model.vocabulary import BOS, END_OF_TURN, EOS, PADDING, UNKNOWN
from tasks.artifact import Artifact, Step
from tasks.evaluate.card import model_card
from tasks.evaluate.checkpoint import ReleaseError, read_checkpoint, write_checkpoint
from tasks.evaluate.config import VARIANTS, ReleaseConfig
from tasks.evaluate.data_card import data_card
from tasks.evaluate.provenance import accompany, check_key
from tasks.launch import Execution
from tasks.progress import Progress
from training.inputs import load_model

VERSION = 10  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: write and verify both checkpoints, and lay them out as folders, with what goes beside them."""
    if execution.signing_key is not None:
        check_key(execution.signing_key)

    def beside(made: Artifact) -> None:
        for variant in VARIANTS:
            accompany(checkpoint_folder(made, variant), variant, made, ancestors(step), execution)

    return release(step, step.input("rl"), step.input("tokenizer"), beside)


def release(
    step: Step, rl: Artifact, tokenizer: Artifact, beside: Callable[[Artifact], None] = lambda made: None
) -> Artifact:
    """Write, verify and publish both checkpoints of the RL model.

    Args:
        beside: adds to the folders what is no part of the release. Called before publishing: a published stage is
            never run again, and folders without checksums or signature would stay so.

    Raises:
        ReleaseError: what was written does not read back as the model that was trained; nothing is published then.
    """
    config = step.config
    assert isinstance(config, ReleaseConfig)
    model = load_model(rl.uri)
    if model.config.rms_norm_eps != LATENT_EPS:
        log.warning(
            "rms_norm_eps is %g, and the norms of latents have %g, as in transformers: vLLM, SGLang and llama.cpp take "
            "the first for these too, so that their logits will differ from ours",
            *(model.config.rms_norm_eps, LATENT_EPS),
        )
    count = parameter_count(model.config)
    statistics: dict[str, Any] = {"parameters": count.total, "active_parameters": count.active}
    work = step.workspace()
    bpe = tokenizer.file("tokenizer")
    with Progress("release", 6, "steps") as progress:
        for variant in VARIANTS:
            folder = work / variant
            write_checkpoint(model, folder, variant == "int4", config.max_shard_bytes)
            write_tokenizer(bpe, folder, model.config)
            write_json(folder / "generation_config.json", generation_config(config, model.config, bpe))
            statistics[f"{variant}_bytes"] = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
            progress.advance(note=f"{variant} written")
        if config.verify:
            from tasks.evaluate.verification import verify

            statistics["verification"] = verify(model, work / "bf16", work / "int4", config.verify_tokens)
        progress.advance(2, note="verified" if config.verify else "not verified, as configured")
        for variant in VARIANTS:
            card = model_card(config, variant, model.config, lineage(step), statistics)
            (work / variant / "README.md").write_text(card, encoding="utf-8")
            (work / variant / "DATA.md").write_text(data_card(config.name, lineage(step)), encoding="utf-8")
            for path in sorted((work / variant).iterdir()):
                step.adopt(f"{variant}/{path.name}", path)
            progress.advance(note=f"{variant} published")
    files = [f"{variant}/{path.name}" for variant in VARIANTS for path in (work / variant).iterdir()]
    beside(step.unpublished(step.parts(files), statistics))
    artifact = step.publish(statistics, files)
    shutil.rmtree(work)
    return artifact


def ancestors(step: Step) -> list[Step]:
    """Every published step that `step` was made from, once, the nearest first."""
    found: dict[str, Step] = {}
    waiting = list(step.inputs)
    while waiting:
        parent = waiting.pop(0)
        if parent.uri not in found:
            found[parent.uri] = parent
            waiting += parent.inputs
    return [each for each in found.values() if each.artifact() is not None]


def lineage(step: Step) -> dict[str, Artifact]:
    """The artifact of each name that `step` was made from; of several snapshots the last one."""
    return {each.name: each.require() for each in reversed(ancestors(step))}


def write_tokenizer(bpe: Path, folder: Path, model: ModelConfig) -> None:
    """tokenizer.json as it was trained, tokenizer_config.json with K2's special tokens, and the chat template: in a
    file of its own as K2 has it, and in the configuration, where older readers look for it.

    Raises:
        ReleaseError: the tokenizer has more entries than the model's embedding.
    """
    tokenizer = Tokenizer.from_file(str(bpe))
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if size > model.vocab_size:
        raise ReleaseError(
            f"the tokenizer has {size} entries and the model {model.vocab_size}: they are not of one run; release the "
            "model with the tokenizer it was trained on"
        )
    shutil.copyfile(bpe, folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(chat_template(), encoding="utf-8")
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    special = [token.content for _, token in added if token.special]
    named = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNKNOWN, "pad_token": PADDING}
    write_json(
        folder / "tokenizer_config.json",
        {
            **named,
            "added_tokens_decoder": {
                str(place): {
                    "content": token.content,
                    "lstrip": token.lstrip,
                    "normalized": token.normalized,
                    "rstrip": token.rstrip,
                    "single_word": token.single_word,
                    "special": token.special,
                }
                for place, token in added
            },
            "additional_special_tokens": [name for name in special if name not in named.values()],
            "chat_template": chat_template(),
            "clean_up_tokenization_spaces": False,
            "model_max_length": model.max_position_embeddings,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


@cache
def chat_template() -> str:
    """The chat template that a released tokenizer carries: `model.chat` said in Jinja, for transformers and vLLM.

    It numbers calls over the whole dialogue, lets the results follow and refuses what `model.dialogue` refuses, as far
    as Jinja sees types. `default_system=true` gives K2's own system turn. One thing Jinja can't say: transformers reads
    the rendered text again, so that a special token's name inside somebody's message becomes that token there, where
    `model.chat` keeps it text.
    """
    return Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8").strip()


def generation_config(config: ReleaseConfig, model: ModelConfig, bpe: Path) -> dict[str, Any]:
    """Generation ends at the end of a turn as well as at the end of a document."""
    turn = Tokenizer.from_file(str(bpe)).token_to_id(END_OF_TURN)
    sampling = {"do_sample": True, "temperature": config.temperature} if config.temperature else {"do_sample": False}
    return {
        "bos_token_id": model.bos_token_id,
        "eos_token_id": [turn, model.eos_token_id],
        "pad_token_id": model.pad_token_id,
        "max_length": model.max_position_embeddings,
        **sampling,
    }


def load_checkpoint(name: str, artifact: Artifact) -> Transformer:
    """The network of a stage's checkpoint, rounded to bf16 as it would be released, or of one of a release's
    variants."""
    if name in VARIANTS:
        return read_checkpoint(checkpoint_folder(artifact, name))
    return as_served(load_model(artifact.uri), int4=False)


def checkpoint_folder(artifact: Artifact, variant: str) -> Path:
    """A folder with the files of one released checkpoint under their own names, each checked against its sha256.

    Beside the manifest of a local artifact (hard links: no space is used twice), in the cache for a remote one.
    """
    parts = artifact.parts(variant)
    if not parts:
        raise ReleaseError(f"{artifact.uri} holds no '{variant}' checkpoint: it is no release; it is '{artifact.name}'")
    sources = {part.key.removeprefix(f"{variant}/"): artifact.file(part) for part in parts}
    local = is_local(artifact.uri)
    root = local_path(artifact.uri) if local else cache_folder() / "release" / artifact.fingerprint
    folder = root / variant
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in sources.items():
        target = folder / name
        if target.exists() and target.samefile(source):
            continue
        partial = folder / f".{name}.{os.getpid()}"
        try:
            os.link(source, partial)
        except OSError:  # another file system, or one without links
            shutil.copyfile(source, partial)
        partial.replace(target)
    return folder
