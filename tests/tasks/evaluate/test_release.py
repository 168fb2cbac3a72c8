"""The release: folders that others can read, the same bytes each time, and nothing that is not what was trained."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from typer.testing import CliRunner

from flows.cli import app
from model.chat import Chat, assistant, flat, tool_result, user
from model.convert import as_served, read_tensors
from model.quantize import is_routed_expert
from model.transformer import routers
from tasks.artifact import Artifact, Step
from tasks.evaluate import verification
from tasks.evaluate.card import QUESTION, hub_licence, model_card, table
from tasks.evaluate.checkpoint import ReleaseError, read_checkpoint, write_checkpoint
from tasks.evaluate.config import ReleaseConfig
from tasks.evaluate.release import checkpoint_folder, release
from tasks.evaluate.verification import through_transformers, verify
from tests.tasks.evaluate.conftest import Literals, publish_model, publish_tokenizer, small_model, small_tokenizer

CORPUS = {
    "documents": 7,
    "bytes": 12_345,
    "by_language": {"en": {}, "zh": {}},
    "by_source": {
        "manual": {
            **{"documents": 4, "bytes": 8000, "licence": "GPL-2.0", "domain": "knowledge", "language": "en"},
            "origin": "Debian package manual 1-1",
        },
        "odd|name": {"documents": 3, "bytes": 4345, "licence": "", "domain": "code", "language": "zh"},
    },
    "read": 9,
    "rejected": 2,
    "rejected_by_reason": {"exact_duplicate": 2},
}


def chain(root) -> Step:
    """A release step whose inputs are published."""
    corpus = Step("corpus", Literals(), str(root))
    corpus.publish(CORPUS)
    tokenizer = publish_tokenizer(root)
    sft = publish_model(root, "sft", small_model(1), {"loss": {"last": 1.25}, "seconds": 3.0}, [corpus])
    rl = publish_model(root, "rl", small_model(2), {"reward": 0.5, "tokens_per_second": 9.0, "int4": True}, [sft])
    return Step("release", ReleaseConfig(name="tiny-k2", max_shard_bytes=1_000_000), str(root), (rl, tokenizer))


def run(step: Step) -> Artifact:
    return release(step.begin(), *(parent.require() for parent in step.inputs))


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Artifact:
    return run(chain(tmp_path_factory.mktemp("release")))


def tokens(count: int = 40) -> torch.Tensor:
    return torch.randint(0, 384, (2, count), generator=torch.Generator().manual_seed(5))


def logits(model, tokens_BS):
    with torch.no_grad():
        return model.logits(model(tokens_BS).hidden_BSD)


@pytest.fixture(scope="module")
def loud(tmp_path_factory) -> dict[str, Path]:
    """Both folders of a network with weights ten times larger, where every part of it moves the logits: YaRN, biases of
    the router, shared experts, a dense layer."""
    root, model = tmp_path_factory.mktemp("loud"), small_model(2, initializer_range=0.2)
    folders = {variant: root / variant for variant in ("bf16", "int4")}
    for variant, folder in folders.items():
        write_checkpoint(model, folder, variant == "int4", 1 << 30)
    return folders


@pytest.mark.parametrize("variant", ["bf16", "int4"])
def test_transformers_reads_the_folder_by_itself_and_agrees(loud, variant):
    """At three times the window that YaRN stretches."""
    x, ours = tokens(400), read_checkpoint(loud[variant])
    assert ours.config.rope_scaling.original_max_position_embeddings < 400
    theirs = through_transformers(loud[variant])
    assert type(theirs).__name__ == "DeepseekV3ForCausalLM"
    with torch.no_grad():
        assert (logits(ours, x) - theirs(x).logits).abs().max() <= 1e-5 * logits(ours, x).abs().max()


def test_int4_as_transformers_multiplies_differs_by_roundings_and_by_near_ties_of_the_router(loud):
    """It keeps dequantised experts in bf16. Told where each token goes, its logits are ours but for that rounding; left
    to itself it sends the few tokens elsewhere whose experts' scores are a rounding apart."""
    x, ours = tokens(400), read_checkpoint(loud["int4"])
    theirs = AutoModelForCausalLM.from_pretrained(loud["int4"], dtype=torch.float32).eval()
    chosen: list[torch.Tensor] = []
    for router in routers(ours):
        router.register_forward_hook(lambda _, given, routing: chosen.append(routing.experts_TK))
    want = logits(ours, x)

    def differences() -> torch.Tensor:
        """Of each token, the largest, as a share of the largest logit."""
        with torch.no_grad():
            return (theirs(x).logits - want).abs().amax(-1) / want.abs().max()

    free = differences()
    for gate, experts_TK in zip(
        [module for module in theirs.modules() if isinstance(module, DeepseekV3TopkRouter)], chosen, strict=True
    ):
        gate.e_score_correction_bias = torch.zeros(x.numel(), ours.config.n_routed_experts).scatter_(1, experts_TK, 9.0)
    assert differences().max() < 1e-2
    assert (free > 1e-2).float().mean() < 0.02


def test_the_folders_hold_what_k2s_hold(released):
    bf16, int4 = (checkpoint_folder(released, variant) for variant in ("bf16", "int4"))
    configs = [json.loads((folder / "config.json").read_text()) for folder in (bf16, int4)]
    assert all(config["model_type"] == "deepseek_v3" for config in configs)
    assert "quantization_config" not in configs[0]
    quantization = configs[1].pop("quantization_config")
    assert configs[0] == configs[1]
    assert quantization["format"] == "pack-quantized"
    assert quantization["config_groups"]["group_0"]["weights"]["group_size"] == 32
    names = {name: tensor.dtype for name, tensor in read_tensors(bf16)}
    for name, tensor in read_tensors(int4):
        stem = name.removesuffix("_packed").removesuffix("_scale").removesuffix("_shape")
        assert (stem != name) == is_routed_expert(stem)
        assert stem in names
        if stem == name:
            assert tensor.dtype == names[name]
    biases = [dtype for name, dtype in names.items() if name.endswith("e_score_correction_bias")]
    assert biases == [torch.float32] * 2
    assert released.statistics["int4_bytes"] < released.statistics["bf16_bytes"]
    generation = json.loads((bf16 / "generation_config.json").read_text())
    tokenizer = small_tokenizer()
    assert generation["eos_token_id"] == [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("[EOS]")]


def test_the_released_tokenizer_speaks_the_chat_format(released):
    folder = checkpoint_folder(released, "int4")
    theirs = AutoTokenizer.from_pretrained(folder)
    assert theirs.chat_template == (folder / "chat_template.jinja").read_text(encoding="utf-8")
    assert theirs.chat_template == json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    messages = [
        user("天气 in Paris?"),
        assistant("", [("weather", {"city": "Paris"})]),
        tool_result("weather", "functions.weather:0", "12"),
    ]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    ids = theirs.apply_chat_template(messages, tools=tools, add_generation_prompt=True, return_dict=False)
    assert ids == flat(Chat(small_tokenizer()).render(messages, tools, add_generation_prompt=True))[0]
    assert theirs.decode(ids[:1]) == "<|im_system|>"
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == ("[BOS]", "[EOS]", "[PAD]")


def test_the_cards_name_every_source_and_licence_and_no_machine(released, tmp_path):
    folder = checkpoint_folder(released, "int4")
    card, data = (folder / "README.md").read_text(), (folder / "DATA.md").read_text()
    assert card.startswith('---\nlicense: "other"\nlicense_name: "undecided"\n')
    assert 'language: ["en", "zh"]' in card
    assert "| manual | Debian package manual 1-1 | knowledge | en | 4 | 0.01 | GPL-2.0 |" in data
    assert "| odd\\|name |  | code | zh | 3 | 0.00 | unknown |" in data
    assert "Of 9 documents that were read, 2 were rejected" in data
    assert "| exact duplicate | 2 |" in data
    assert "| loss: last | 1.25 |" in card
    assert "seconds" not in card
    assert "per second" not in card
    assert all(released.uri.rsplit("/release/")[0] not in text for text in (card, data))
    other = (checkpoint_folder(released, "bf16") / "README.md").read_text()
    assert "compressed-tensors" not in other
    assert "trained with these rounded weights in the forward" in card


@pytest.mark.parametrize(
    ("licence", "header"),
    [
        ("Apache-2.0", {"license": "apache-2.0"}),
        ("cc-by-4.0", {"license": "cc-by-4.0"}),
        ("GPL-2.0-or-later", {"license": "other", "license_name": "gpl-2.0-or-later"}),
        ("MIT OR Apache-2.0", {"license": "other", "license_name": "mit-or-apache-2.0"}),
    ],
)
def test_the_header_names_the_licence_as_hugging_face_takes_it(licence, header):
    assert hub_licence(licence) == header


class Trained(Literals):
    """What a card tells of the training stages."""

    optimizer: dict[str, str] = {}
    stages: dict[str, list[dict[str, str]]] = {}
    sets: dict[str, int] = {}


@pytest.mark.parametrize(
    ("base", "rl", "told"),
    [
        (
            {"optimizer": {"matrices": "adamw"}, "stages": {"stages": [{"name": "one"}, {"name": "two"}]}},
            {"sets": {"safety": 60}},
            ("### Pretraining (AdamW; one, two)\n", "Refusals were practised on stand-ins for attacks alone"),
        ),
        ({"optimizer": {"matrices": "muon"}}, {}, ("### Pretraining (MuonClip)\n", "No refusal was trained")),
        ({}, {"sets": {"safety": 0, "math": 9}}, ("### Pretraining\n", "No refusal was trained")),
    ],
)
def test_the_card_says_what_was_configured(tmp_path, base, rl, told):
    made = {"base": base, "rl": rl}
    lineage = {name: Step(name, Trained(**of), str(tmp_path)).publish({"tokens": 1}) for name, of in made.items()}
    card = model_card(ReleaseConfig(), "bf16", small_model().config, lineage, {})
    for words in told:
        assert words in card


def test_no_line_break_of_a_name_breaks_a_table():
    assert table(("a\nb|\r\nc", "1")).splitlines()[2:] == ["| a b\\| c | 1 |"]


@pytest.mark.parametrize("variant", ["bf16", "int4"])
def test_what_the_card_says_to_run_runs(released, variant, monkeypatch, capsys, tmp_path):
    """Beside the folder's files; the servers need a GPU, and the card says that they were not run."""
    folder = checkpoint_folder(released, variant)
    monkeypatch.chdir(folder)
    card = (folder / "README.md").read_text()
    blocks = re.findall(r"```(python|bash)\n(.*?)```", card, flags=re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "bash", "bash"]
    (tmp_path / "snippet.py").write_text(blocks[0][1])
    said = runpy.run_path(str(tmp_path / "snippet.py"))
    ours = Chat(Tokenizer.from_file("tokenizer.json"))
    assert said["inputs"]["input_ids"][0].tolist() == ours.prompt([user(QUESTION)])
    assert len(said["reply"]) > 0
    assert said["tokenizer"].decode(said["reply"], skip_special_tokens=True) in capsys.readouterr().out
    program, *given = shlex.split(blocks[1][1])
    assert program == "openk2"
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert "They were not run for this card" in card.partition("vllm serve")[0]


def test_the_same_inputs_give_the_same_bytes_also_after_an_interruption(released, tmp_path, monkeypatch):
    step = chain(tmp_path)
    import tasks.evaluate.release as module

    adopted = Step.adopt
    monkeypatch.setattr(Step, "adopt", lambda self, key, path: adopted(self, key, path) if "bf16" in key else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(step)
    assert step.artifact() is None
    monkeypatch.undo()
    again = module.release(step.begin(), *(parent.require() for parent in step.inputs))
    assert [(p.key, p.sha256) for p in again.parts()] == [(p.key, p.sha256) for p in released.parts()]
    assert again.manifest["content"] == released.manifest["content"]
    assert not (tmp_path / "release" / step.fingerprint / "work").exists()


def test_a_part_that_a_killed_attempt_left_of_other_bytes_is_put_again(released, tmp_path):
    """Where the attempt ran older code: what is published is what was verified now."""
    step = chain(tmp_path / "run").begin()
    write_checkpoint(small_model(7), tmp_path / "other", False, 1_000_000)
    for file in (tmp_path / "other").glob("*.safetensors"):
        step.adopt(f"bf16/{file.name}", file)
    again = release(step, *(parent.require() for parent in step.inputs))
    assert [(p.key, p.sha256) for p in again.parts()] == [(p.key, p.sha256) for p in released.parts()]


def test_an_epsilon_that_other_engines_read_otherwise_is_warned_of(tmp_path, caplog):
    rl = publish_model(tmp_path, "rl", small_model(2, rms_norm_eps=1e-5), {"int4": True})
    run(Step("release", ReleaseConfig(verify=False), str(tmp_path), (rl, publish_tokenizer(tmp_path))))
    assert "rms_norm_eps is 1e-05, and the norms of latents have 1e-06" in caplog.text


def test_a_checkpoint_that_is_not_the_trained_model_is_not_released(tmp_path):
    model, other = small_model(1), small_model(1)
    with torch.no_grad():
        other.blocks()[1].mlp.experts.down_EDF[3, 2, 5] += 0.01
    write_checkpoint(model, tmp_path / "bf16", False, 1 << 30)
    write_checkpoint(model, tmp_path / "int4", True, 1 << 30)
    assert verify(model, tmp_path / "bf16", tmp_path / "int4", 16)["int4_matrices"] == 3 * 2 * 8
    write_checkpoint(other, tmp_path / "int4", True, 1 << 30)
    with pytest.raises(ReleaseError, match="int4 dequantised is not the model"):
        verify(model, tmp_path / "bf16", tmp_path / "int4", 16)
    with pytest.raises(ReleaseError, match="bf16 read back is not"):
        verify(other, tmp_path / "bf16", tmp_path / "int4", 16)
    config = tmp_path / "bf16" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"routed_scaling_factor": 1.0}))
    with pytest.raises(ReleaseError, match="not the bf16 rounding"):
        verify(model, tmp_path / "bf16", tmp_path / "int4", 16)


@pytest.fixture
def read_otherwise(monkeypatch):
    """transformers that reads the routers of a folder as a function changes them."""

    def patch(change: Callable[[DeepseekV3TopkRouter], object]) -> None:
        def changed(folder: Path):
            model = through_transformers(folder)
            for module in model.modules():
                if isinstance(module, DeepseekV3TopkRouter):
                    change(module)
            return model

        monkeypatch.setattr(verification, "through_transformers", changed)

    return patch


def test_tokens_that_are_a_tie_to_the_router_refuse_no_release(tmp_path, read_otherwise):
    """Experts 2 and 5 score alike in every layer, and transformers, by its roundings, takes the other one."""
    model = small_model(2, initializer_range=0.2)
    for router in routers(model):
        router.weight.data[5] = router.weight.data[2]
        router.e_score_correction_bias[5] = router.e_score_correction_bias[2]
    write_checkpoint(model, tmp_path / "bf16", False, 1 << 30)
    write_checkpoint(model, tmp_path / "int4", True, 1 << 30)
    for favoured in (2, 5):
        read_otherwise(lambda gate, expert=favoured: gate.e_score_correction_bias[expert].add_(1e-6))
        assert verify(model, tmp_path / "bf16", tmp_path / "int4", 48)["transformers_difference"] < 1e-5


@pytest.mark.parametrize(
    "change",
    [
        lambda gate: gate.e_score_correction_bias.zero_(),
        lambda gate: gate.e_score_correction_bias[3].add_(0.02),
        lambda gate: gate.weight.data.mul_(1.01),
        lambda gate: setattr(gate, "routed_scaling_factor", 1.0),
        lambda gate: setattr(gate, "norm_topk_prob", False),
        lambda gate: (setattr(gate, "num_group", 4), setattr(gate, "topk_group", 1)),
    ],
    ids=["no bias", "one bias", "weights", "scaling", "normalisation", "groups"],
)
def test_a_router_that_transformers_reads_otherwise_refuses_the_release(loud, read_otherwise, change):
    model = small_model(2, initializer_range=0.2)
    read_otherwise(change)
    with pytest.raises(ReleaseError, match="transformers"):
        verify(model, loud["bf16"], loud["int4"], 48)


def test_shards_are_cut_and_read_back_whole(tmp_path):
    model = small_model(3)
    write_checkpoint(model, tmp_path / "one", True, 1 << 30)
    write_checkpoint(model, tmp_path / "many", True, 60_000)
    files = sorted(path.name for path in (tmp_path / "many").glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    stored = dict(read_tensors(tmp_path / "many"))
    assert set(index["weight_map"]) == set(stored)
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in stored.values())
    x = tokens()
    assert torch.equal(logits(read_checkpoint(tmp_path / "one"), x), logits(read_checkpoint(tmp_path / "many"), x))
    assert torch.equal(logits(read_checkpoint(tmp_path / "one"), x), logits(as_served(model, int4=True), x))
    # a smaller checkpoint over it leaves nothing behind
    write_checkpoint(model, tmp_path / "many", True, 1 << 30)
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["config.json", "model.safetensors"]


def test_broken_weights_and_folders_are_refused_by_name(tmp_path):
    model = small_model(4)
    with torch.no_grad():
        model.norm.weight[3] = float("inf")
    with pytest.raises(ReleaseError, match=r"model\.norm\.weight holds NaN or infinite"):
        write_checkpoint(model, tmp_path / "a", False, 1 << 30)
    with pytest.raises(ReleaseError, match=r"has no config\.json"):
        read_checkpoint(tmp_path / "nowhere")
    write_checkpoint(small_model(4), tmp_path / "b", False, 60_000)
    (tmp_path / "b" / sorted(p.name for p in (tmp_path / "b").glob("*.safetensors"))[1]).unlink()
    with pytest.raises(ReleaseError, match="lacks model-00002"):
        read_checkpoint(tmp_path / "b")


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("config.json", b'{"hidden', "is no JSON"),
        ("config.json", b"[]", "no JSON object"),
        ("config.json", b"{}", "model_type = None"),
        ("model.safetensors.index.json", b"{}", "no weight_map"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": 3}}', "no weight_map"),
        ("model-00001-of-00004.safetensors", None, "cut short"),
        ("model-00001-of-00004.safetensors", b"", "cut short"),
        ("tokenizer.json", b"{", "is no tokenizer"),
    ],
)
@pytest.mark.parametrize("int4", [False, True])
def test_half_written_folders_are_one_clear_error(tmp_path, int4, file, content, told):
    write_checkpoint(small_model(4), tmp_path, int4, 150_000 if int4 else 200_000)
    path = next(iter(sorted(tmp_path.glob("*.safetensors")))) if file.startswith("model-") else tmp_path / file
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    with pytest.raises(ReleaseError, match=told) as caught:
        read_checkpoint(tmp_path)
    assert str(path.name) in str(caught.value) or file == "config.json"


def test_altered_int4_tensors_are_refused_by_name(tmp_path):
    write_checkpoint(small_model(4), tmp_path, True, 1 << 30)
    weights = tmp_path / "model.safetensors"
    whole = load_file(weights)
    stem = next(name for name in whole if name.endswith("packed")).removesuffix("packed")
    for kind, other in (
        ("packed", whole[f"{stem}packed"].float()),
        ("packed", whole[f"{stem}packed"][0]),
        ("shape", torch.tensor(3)),
        ("scale", whole[f"{stem}scale"].int()),
    ):
        save_file(whole | {f"{stem}{kind}": other}, weights)
        with pytest.raises(ReleaseError, match=f"{stem}packed .*altered"):
            read_checkpoint(tmp_path)
    save_file(whole, weights)
    save_file({f"{stem}packed": whole[f"{stem}packed"]}, tmp_path / "other.safetensors")
    files = dict.fromkeys(whole, weights.name) | {"again": "other.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    with pytest.raises(ReleaseError, match=f"{stem}packed is given twice"):
        read_checkpoint(tmp_path)


def test_a_tokenizer_of_another_run_is_refused(tmp_path):
    tokenizer = publish_tokenizer(tmp_path)
    small = small_model(1).config.replace(vocab_size=300, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    from model.transformer import Transformer

    rl = publish_model(tmp_path, "rl", Transformer(small, seed=0))
    step = Step("release", ReleaseConfig(), str(tmp_path), (rl, tokenizer))
    with pytest.raises(ReleaseError, match="not of one run"):
        run(step)
    assert step.artifact() is None


def test_a_damaged_part_never_becomes_a_folder(released, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(released.uri, copy)
    artifact = Artifact.load(str(copy))
    part = next(part for part in artifact.parts("int4") if part.key.endswith(".safetensors"))
    path = copy / part.path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(Exception, match="altered"):
        checkpoint_folder(artifact, "int4")


def test_a_release_on_a_remote_store_is_laid_out_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))
    root = f"memory://{tmp_path.name}"
    rl, tokenizer = publish_model(root, "rl", small_model(2)), publish_tokenizer(root)
    step = Step("release", ReleaseConfig(verify=False), root, (rl, tokenizer))
    # a training stage's artifact is read where it lies; the release itself may go anywhere
    local = publish_model(tmp_path, "rl", small_model(2))
    artifact = release(step, local.require(), tokenizer.require())
    folder = checkpoint_folder(artifact, "int4")
    assert folder.is_relative_to(tmp_path / "cache")
    x = tokens()
    assert torch.equal(logits(read_checkpoint(folder), x), logits(as_served(small_model(2), int4=True), x))
