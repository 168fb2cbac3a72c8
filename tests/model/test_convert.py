"""Checkpoints: names, bytes, round trips, and the faults they are refused for."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from model.convert import INDEX, from_hf_state, load_hf, save_hf, to_hf_state
from model.sizes import MODEL_PRESETS, model_preset
from model.transformer import Transformer, routers
from tests.model.test_parity import random_config


@pytest.fixture
def model() -> Transformer:
    model = Transformer(model_preset("tiny").with_yarn(4), seed=8)
    for router in routers(model):
        router.e_score_correction_bias.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(0))
    return model


def same(one: Transformer, other: Transformer) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def golden() -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of the released checkpoint."""
    found = {}
    for line in (Path(__file__).parent / "golden" / "k2-tensors.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        pattern, *shape = line.split()
        parts = re.split(r"\[(\d+)-(\d+)\]", pattern)
        ranges = [range(int(low), int(high) + 1) for low, high in zip(parts[1::3], parts[2::3], strict=True)]
        for numbers in itertools.product(*ranges):
            name = parts[0] + "".join(f"{number}{rest}" for number, rest in zip(numbers, parts[3::3], strict=True))
            found[name] = tuple(map(int, shape))
    return found


def test_names_and_shapes_are_k2s_one_by_one():
    """All 69,975 tensors of Kimi K2, built on the meta device."""
    with torch.device("meta"):
        state = to_hf_state(Transformer(MODEL_PRESETS["k2"]))
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == golden()


def test_float32_round_trip_is_exact(model, tmp_path):
    save_hf(model, tmp_path, torch.float32, shard_bytes=100_000)
    read = load_hf(tmp_path)
    assert same(model, read)
    assert read.config == model.config
    tokens = torch.arange(50)[None]
    assert torch.equal(read(tokens).hidden_BSD, model(tokens).hidden_BSD)


def test_bfloat16_rounds_weights_and_never_the_bias(model, tmp_path):
    save_hf(model, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    kinds = {name: tensor.dtype for name, tensor in stored.items()}
    assert {kind for name, kind in kinds.items() if "bias" not in name} == {torch.bfloat16}
    assert {kind for name, kind in kinds.items() if "bias" in name} == {torch.float32}
    read = load_hf(tmp_path, torch.bfloat16)
    assert same(model.to(torch.bfloat16), read)
    again = tmp_path / "again"
    save_hf(read, again)
    assert same(load_hf(again, torch.bfloat16), read)


def test_shards_keep_to_their_size_and_the_index_tells_all(model, tmp_path):
    save_hf(model, tmp_path, torch.float32, shard_bytes=150_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert sorted(set(index["weight_map"].values())) == files
    total = 0
    for file in files:
        tensors = load_file(tmp_path / file)
        size = sum(tensor.nbytes for tensor in tensors.values())
        assert size <= 150_000 or len(tensors) == 1
        assert all(index["weight_map"][name] == file for name in tensors)
        total += size
    assert index["metadata"]["total_size"] == total
    assert index["weight_map"].keys() == to_hf_state(model).keys()


def test_same_model_same_bytes_and_old_shards_go(model, tmp_path):
    def digests() -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(tmp_path.iterdir())}

    save_hf(model, tmp_path, shard_bytes=30_000)
    save_hf(model, tmp_path, shard_bytes=100_000)
    first = digests()
    save_hf(Transformer(model.config, seed=1), tmp_path, shard_bytes=20_000)
    save_hf(load_hf_like(model), tmp_path, shard_bytes=100_000)
    assert digests() == first


def load_hf_like(model: Transformer) -> Transformer:
    twin = Transformer(model.config, seed=99)
    from_hf_state(twin, to_hf_state(model))
    return twin


def test_every_fault_is_listed_by_name(model):
    state = {name: tensor.clone() for name, tensor in to_hf_state(model).items()}
    del state["model.layers.1.mlp.experts.5.up_proj.weight"]
    state["model.layers.61.extra.weight"] = torch.zeros(1)
    state["model.norm.weight"] = torch.zeros(3)
    state["lm_head.weight"][7, 7] = torch.nan
    state["model.layers.0.mlp.up_proj.weight"][0, 0] = torch.inf
    with pytest.raises(ValueError) as caught:
        from_hf_state(Transformer(model.config), state)
    told = str(caught.value)
    assert "1 missing: model.layers.1.mlp.experts.5.up_proj.weight" in told
    assert "1 unknown: model.layers.61.extra.weight" in told
    assert "model.norm.weight (3,) for (64,)" in told
    assert "2 not finite: lm_head.weight, model.layers.0.mlp.up_proj.weight" in told or (
        "2 not finite: model.layers.0.mlp.up_proj.weight, lm_head.weight" in told
    )


@pytest.mark.parametrize(("dtype", "value"), [(torch.float32, 1e300), (torch.float16, 1e6)])
def test_a_number_that_the_model_s_dtype_does_not_hold_is_told(model, dtype, value):
    state = {name: tensor.double() for name, tensor in to_hf_state(model).items()}
    state["model.norm.weight"][0] = value
    with pytest.raises(ValueError, match=r"1 not finite: model\.norm\.weight"):
        from_hf_state(Transformer(model.config).to(dtype), state)


def test_a_tensor_given_twice_is_told(model):
    state = to_hf_state(model)
    with pytest.raises(ValueError, match=r"given twice: lm_head\.weight"):
        from_hf_state(Transformer(model.config), [*state.items(), ("lm_head.weight", state["lm_head.weight"])])


def test_broken_weights_are_not_written(model, tmp_path):
    model.blocks()[2].mlp.experts.down_EDF.data[3, 0, 0] = torch.inf
    with pytest.raises(ValueError, match=r"layers\.2\.mlp\.experts\.3\.down_proj"):
        save_hf(model, tmp_path)
    assert not (tmp_path / "model.safetensors.index.json").exists()
    with pytest.raises(FileNotFoundError):
        load_hf(tmp_path)


def test_float16_overflow_is_not_written(model, tmp_path):
    model.norm.weight.data[0] = 1e6
    with pytest.raises(ValueError, match=r"model\.norm\.weight holds NaN or infinite values in torch\.float16"):
        save_hf(model, tmp_path, torch.float16)


def test_incomplete_folders_are_told(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_hf(tmp_path)
    save_hf(model, tmp_path, shard_bytes=100_000)
    victim = sorted(tmp_path.glob("*.safetensors"))[1]
    victim.unlink()
    with pytest.raises(FileNotFoundError, match=victim.name):
        load_hf(tmp_path)


def test_broken_files_are_told_by_name(model, tmp_path):
    save_hf(model, tmp_path, shard_bytes=100_000)
    shard = sorted(tmp_path.glob("*.safetensors"))[2]
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{shard.name} is cut short"):
        load_hf(tmp_path)
    shard.write_bytes(whole)
    index = tmp_path / INDEX
    told = index.read_text()
    for broken, words in ((told[:100], "is no JSON"), ("[]", "no JSON object"), ("{}", "no weight_map")):
        index.write_text(broken)
        with pytest.raises(ValueError, match=f"{INDEX}.*{words}"):
            load_hf(tmp_path)
    index.write_text(told)
    for broken in ("{", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(ValueError, match=r"config\.json is no JSON"):
            load_hf(tmp_path)


def test_a_shard_that_the_index_forgot_is_missed_tensor_by_tensor(model, tmp_path):
    save_hf(model, tmp_path, shard_bytes=100_000)
    index = json.loads((tmp_path / INDEX).read_text())
    victim = index["weight_map"]["lm_head.weight"]
    index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file != victim}
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"missing: .*lm_head\.weight"):
        load_hf(tmp_path)


def test_quantised_weights_are_refused(model, tmp_path):
    """K2 is released in FP8 blocks: without their scales its numbers mean nothing."""
    save_hf(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for quantised in ({"quant_method": "fp8"}, "fp8"):
        (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": quantised}))
        with pytest.raises(ValueError, match=r"quantised by 'fp8'.*bf16"):
            load_hf(tmp_path)


def test_a_tokenizer_with_more_ids_than_the_vocabulary_is_refused(model, tmp_path):
    save_hf(model, tmp_path)
    for entries in (512, 513):
        words = {f"w{number}": number for number in range(entries)}
        Tokenizer(WordLevel(words, unk_token="w0")).save(str(tmp_path / "tokenizer.json"))
        if entries == 512:
            assert load_hf(tmp_path).config == model.config
    with pytest.raises(ValueError, match=r"vocab_size = 512.*ids up to 512"):
        load_hf(tmp_path)


def test_a_file_on_which_the_tokenizers_library_panics_is_no_tokenizer(model, tmp_path):
    save_hf(model, tmp_path)
    broken = {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    content = {"version": "1.0", "normalizer": broken, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer \(.*Cannot parse"):
        load_hf(tmp_path)


@pytest.mark.parametrize("field", ["vocab_size", "n_routed_experts", "num_hidden_layers"])
def test_no_memory_is_taken_for_a_network_that_the_files_do_not_hold(model, tmp_path, field, monkeypatch):
    save_hf(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {field: 100_000 if field == "vocab_size" else 1000}))
    monkeypatch.setattr("model.convert._empty", lambda *_: pytest.fail("it was built"))
    with pytest.raises(ValueError, match=r"describes a network of [\d,]+ numbers, and the files hold 246,880"):
        load_hf(tmp_path)


def test_packed_weights_count_as_the_numbers_they_hold(tmp_path):
    model = Transformer(model_preset("tiny", n_routed_experts=64), seed=0)
    save_hf(model, tmp_path, int4=True)
    assert load_hf(tmp_path).config == model.config


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000), dtype=st.sampled_from([torch.float32, torch.bfloat16]), shard=st.integers(1, 60_000)
)
def test_any_network_survives_the_round_trip(seed, dtype, shard):
    """Whatever its shape and however its shards are cut, a network reads back as it was written."""
    model = Transformer(random_config(seed), seed=seed).to(dtype)
    for router in routers(model):
        router.e_score_correction_bias.uniform_(-1, 1)
    with tempfile.TemporaryDirectory() as folder:
        save_hf(model, folder, dtype, shard_bytes=shard)
        read = load_hf(folder, dtype)
    assert read.config == model.config
    assert same(read, model)


def test_a_single_file_has_no_index(model, tmp_path):
    save_hf(model, tmp_path, torch.float32, shard_bytes=100_000)
    save_hf(model, tmp_path, torch.float32)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert same(load_hf(tmp_path), model)


def test_frequencies_that_follow_from_the_configuration_are_passed_over(model, tmp_path):
    """Moonlight's folder holds them for every layer."""
    save_hf(model, tmp_path, torch.float32)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {"model.layers.1.self_attn.rotary_emb.inv_freq": torch.ones(4)}, file)
    assert same(load_hf(tmp_path), model)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.bool, torch.complex64])
def test_tensors_that_are_no_plain_numbers_are_refused(model, tmp_path, dtype):
    save_hf(model, tmp_path)
    file, name = tmp_path / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    tensors = load_file(file)
    save_file(tensors | {name: tensors[name].to(dtype)}, file)
    with pytest.raises(ValueError, match=f"1 quantised, or no numbers: {name} {dtype}"):
        load_hf(tmp_path)


def test_files_outside_the_folder_are_not_read(model, tmp_path):
    save_hf(model, tmp_path / "whole")
    save_hf(model, tmp_path / "other", shard_bytes=100_000)
    for file in ("../whole/model.safetensors", str(tmp_path / "whole" / "model.safetensors")):
        weight_map = dict.fromkeys(to_hf_state(model), file)
        (tmp_path / "other" / INDEX).write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ValueError, match="no weight_map of files beside it"):
            load_hf(tmp_path / "other")


def test_tensors_of_another_size_are_refused(model, tmp_path):
    save_hf(model, tmp_path, torch.float32)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"] = torch.zeros(5)
    save_file(tensors, file)
    with pytest.raises(ValueError, match=r"model\.norm\.weight \(5,\) for \(64,\)"):
        load_hf(tmp_path)
