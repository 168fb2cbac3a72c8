"""The model card, written from manifests alone: what it is, how it is run, how it was trained, what it can't do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from model.config import ModelConfig, parameter_count
from tasks.artifact import Artifact
from tasks.evaluate.config import ReleaseConfig

QUESTION = "What is 17 + 25?"
CHAIN = ("sources", "corpus", "rewrites", "tokenizer", "tokens", "base", "dialogues", "sft", "rl")
HUB_LICENCES = frozenset(
    "apache-2.0 mit isc zlib ncsa unlicense wtfpl postgresql bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear "
    "afl-3.0 artistic-2.0 ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 mpl-2.0 ms-pl osl-3.0 ofl-1.1 lppl-1.3c "
    "gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 lgpl-lr agpl-3.0 gfdl cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 "
    "cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 "
    "cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 c-uda cdla-sharing-1.0 cdla-permissive-1.0 "
    "cdla-permissive-2.0 odc-by odbl pddl openrail openrail++ bigscience-openrail-m creativeml-openrail-m "
    "bigscience-bloom-rail-1.0 bigcode-openrail-m unknown".split()
)
"""Licences that Hugging Face knows by name (https://huggingface.co/docs/hub/repositories-licenses)."""


def model_card(
    config: ReleaseConfig,
    variant: str,
    model: ModelConfig,
    lineage: Mapping[str, Artifact],
    release: Mapping[str, Any],
) -> str:
    """README.md of one released folder.

    Args:
        config: name and licence.
        variant: "bf16" or "int4".
        model: the network.
        lineage: every artifact the model was made from, by name; what is absent is left out of the card.
        release: the release's own statistics.

    Returns:
        Markdown behind Hugging Face's YAML header. The same manifests give the same bytes: no clock, path or host.
    """
    corpus = lineage["corpus"].statistics if "corpus" in lineage else {}
    languages = sorted(corpus.get("by_language", {})) or ["en"]
    header = {
        **hub_licence(config.licence),
        "language": languages,
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["kimi_k2", "mixture-of-experts", "openk2", *(["compressed-tensors"] if variant == "int4" else [])],
    }
    sections = [
        "---\n" + "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in header.items()) + "---",
        f"# {config.name} ({'INT4' if variant == 'int4' else 'bf16'})",
        "\n".join(_summary(variant, model, lineage, release)),
        "## Use\n\n" + _use(config, variant, model),
        "## Data\n\n" + "\n".join(_data(corpus, lineage)),
        "## Training\n\n" + "\n".join(_training(lineage)),
        "## Limits\n\n" + _limits(model, variant, lineage),
        "## Lineage\n\n" + "\n".join(_chain(lineage)),
    ]
    return "\n\n".join(sections) + "\n"


def hub_licence(licence: str) -> dict[str, str]:
    """The header's licence as Hugging Face takes it: its own identifier, which is lower-case where SPDX's is not; what
    it does not know is `other`, and has to have a name."""
    name = "-".join(licence.lower().split())
    if name in HUB_LICENCES:
        return {"license": name}
    return {"license": "other", "license_name": "undecided" if name == "other" else name}


def _summary(
    variant: str, model: ModelConfig, lineage: Mapping[str, Artifact], release: Mapping[str, Any]
) -> Iterator[str]:
    count = parameter_count(model)
    size = release.get(f"{variant}_bytes", 0)
    trained = "rl" in lineage and lineage["rl"].statistics.get("int4")
    yield (
        "A language model of the Kimi K2 architecture (latent attention; each token is seen by "
        f"{model.num_experts_per_tok} of {model.n_routed_experts} routed experts and {model.n_shared_experts} shared), "
        "trained from scratch with openk2, the K2 recipe as software. It shares no weights with Moonshot AI's models."
    )
    yield ""
    yield table(
        ("parameters", f"{count.total:,}"),
        ("active per token", f"{count.active:,}"),
        ("layers (dense first)", f"{model.num_hidden_layers} ({model.first_k_dense_replace})"),
        ("context", f"{model.max_position_embeddings:,} tokens"),
        ("vocabulary", f"{model.vocab_size:,}"),
        ("weights", f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"),
    )
    if variant == "int4":
        yield ""
        yield (
            "The routed experts are INT4, weight only: groups of 32, symmetric, compressed-tensors `pack-quantized`. "
            + ("They were trained with these rounded weights in the forward. " if trained else "")
            + "Everything else is bf16, the routers' correction biases float32."
        )


def _use(config: ReleaseConfig, variant: str, model: ModelConfig) -> str:
    """How others run the folder. A test runs the first two blocks as they stand here."""
    latent = model.kv_lora_rank, model.qk_rope_head_dim
    lines = [
        "The folder has Kimi K2's layout: its tensor names, special tokens and chat format. `model_type` is the "
        "architecture's, `deepseek_v3`, which transformers 5, vLLM and SGLang know by themselves: no remote code is "
        "run.",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'tokenizer = AutoTokenizer.from_pretrained(".")',
        'model = AutoModelForCausalLM.from_pretrained(".", dtype="auto")',
        f'messages = [{{"role": "user", "content": "{QUESTION}"}}]',
        "inputs = tokenizer.apply_chat_template(",
        '    messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"',
        ")",
        "reply = model.generate(**inputs, max_new_tokens=32)[0, inputs.input_ids.shape[1] :]",
        "print(tokenizer.decode(reply, skip_special_tokens=True))",
        "```",
        "",
        *(
            ["transformers needs `compressed-tensors` for it, and dequantises the experts while it loads.", ""]
            if variant == "int4"
            else []
        ),
        "With openk2:",
        "",
        "```bash",
        f'openk2 generate --folder . "{QUESTION}"',
        "```",
        "",
        "Servers. They were not run for this card; the options are those of vLLM 0.33 and SGLang 0.5.23:",
        "",
        "```bash",
        f"vllm serve . --served-model-name {config.name} --enable-auto-tool-choice --tool-call-parser kimi_k2",
        f"python -m sglang.launch_server --model-path . --served-model-name {config.name} --tool-call-parser kimi_k2",
        "```",
    ]
    if latent != (512, 64):
        lines += [
            "",
            f"vLLM on a CPU refuses this network: its latent is {latent[0]} + {latent[1]}, and that kernel "
            "takes 512 + 64 alone.",
        ]
    return "\n".join(lines)


def _data(corpus: Mapping[str, Any], lineage: Mapping[str, Artifact]) -> Iterator[str]:
    if corpus:
        yield f"{corpus['documents']:,} documents, {corpus['bytes'] / 1e6:,.1f} MB of curated text."
    if "tokens" in lineage:
        yield f"{lineage['tokens'].statistics['tokens']:,} tokens of them are there to train on."
    yield "[DATA.md](DATA.md) names every source with its licence, what was left out and why, and what is synthetic."


def _training(lineage: Mapping[str, Artifact]) -> Iterator[str]:
    """The plain figures of every training stage's summary, as they are."""
    titles = {
        "base": _pretraining(lineage),
        "sft": "Supervised fine-tuning",
        "rl": "Reinforcement learning with verifiable rewards (K2 objective)",
    }
    for name, title in titles.items():
        if name not in lineage:
            continue
        figures = [(_words(key), _figure(value)) for key, value in _plain(lineage[name].statistics)]
        yield f"### {title}\n"
        yield table(*figures, header=("figure", "value"))
        yield ""
    yield (
        "The stage that follows the release, `evaluation`, measures the base, SFT, RL and released checkpoints on the "
        "same prompts, with intervals."
    )


def _pretraining(lineage: Mapping[str, Artifact]) -> str:
    """What trained the base model, and in which stages, as it was configured."""
    config = lineage["base"].manifest["config"] if "base" in lineage else {}
    stages = config.get("stages", {}).get("stages", [])
    optimizer = {"muon": ["MuonClip"], "adamw": ["AdamW"]}.get(config.get("optimizer", {}).get("matrices", ""), [])
    told = [*optimizer, ", ".join(stage["name"] for stage in stages)]
    return "Pretraining" + (f" ({'; '.join(filter(None, told))})" if any(told) else "")


def _plain(statistics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers of a summary, two levels deep; times and rates of this machine stay out."""
    for key, value in statistics.items():
        if any(word in key for word in ("second", "time", "memory", "throughput", "per_s", "flops", "mfu")):
            continue
        name = f"{prefix}{key}"
        if isinstance(value, bool | int | float):
            yield name, value
        elif isinstance(value, Mapping) and not prefix:
            yield from _plain(value, f"{name}: ")


def _limits(model: ModelConfig, variant: str, lineage: Mapping[str, Artifact]) -> str:
    share = parameter_count(model).total / parameter_count(ModelConfig()).total
    sets = lineage["rl"].manifest["config"].get("sets", {}) if "rl" in lineage else {}
    practised = sets.get("safety")
    refusals = "Refusals were practised on stand-ins for attacks alone" if practised else "No refusal was trained"
    lines = [
        "- Nothing but synthetic tasks and tool schemas was rewarded; its facts are unchecked.",
        f"- This card is written before the evaluation, whose page (`comparison.html`) has what was measured of safety "
        f"and general benchmarks. {refusals}: do not put it in front of people.",
        "- The pass rates above hold for the task families of the training data only.",
    ]
    if share < 0.01:
        lines.insert(
            0, f"- It has {share:.1e} of Kimi K2's parameters: a demonstration of the recipe, not an assistant."
        )
    if variant == "int4":
        lines.append("- Not every engine has INT4 kernels for experts of this size; vLLM has none on CPU.")
    return "\n".join(lines)


def _chain(lineage: Mapping[str, Artifact]) -> Iterator[str]:
    yield "Fingerprints of the steps (`openk2 status` shows the same ones); the corpus goes by the hash of its content."
    yield ""
    known = [name for name in CHAIN if name in lineage]
    yield table(*((name, f"`{lineage[name].fingerprint}`") for name in known), header=("step", "fingerprint"))


def table(*rows: tuple[str, ...], header: tuple[str, ...] = ("", "")) -> str:
    """A table in Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    cells = ([" ".join(str(cell).replace("|", "\\|").splitlines()) for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _figure(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
