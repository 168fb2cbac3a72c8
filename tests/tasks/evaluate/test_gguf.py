"""A released folder in llama.cpp: text becomes our tokens there, and its log-probabilities are ours."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from model.vocabulary import SPECIAL_TOKENS
from tasks.evaluate.checkpoint import ReleaseError, read_checkpoint, write_checkpoint
from tasks.evaluate.gguf import export
from tasks.tokens.tokenizer import words
from tests.tasks.evaluate.conftest import VOCABULARY, small_model

TEXTS = ["What is 12 + 30?", "'self' it's a 'dog', 你好world，世界 42 weather ##", '{"city":"Paris"}\n\n  The answer']
# a process of its own: llama.cpp may hang when it is closed
ASK = """
import json, os, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.n_gpu_layers = sys.argv[1], 512, 1, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.warmup = params.fit_params = False
params.cache_ram_mib, params.verbosity = 0, -1
params.yarn_beta_fast = params.yarn_beta_slow = 1.0
server = xllamacpp.Server(params)
for text in json.loads(sys.argv[2]):
    asked = {"prompt": text, "n_predict": 1, "temperature": 0, "n_probs": 10, "cache_prompt": False}
    print("ANSWER", json.dumps(server.handle_completions(asked)), flush=True)
os._exit(0)
"""


def released(folder: Path, digits: int, int4: bool) -> Path:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(words(digits)), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = VOCABULARY - len(SPECIAL_TOKENS)
    # `'dog` becomes one token, which an expression with English contractions would begin with `'d`
    tokenizer.train_from_iterator(TEXTS * 4, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    write_checkpoint(small_model(initializer_range=0.2), folder, int4, 1 << 30)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("int4", [False, True])
def test_llama_cpp_reads_text_as_we_do_and_gives_our_log_probabilities(tmp_path, int4):
    pytest.importorskip("xllamacpp")
    folder = released(tmp_path / "released", 1, int4)
    export(folder, tmp_path / "model.gguf")
    command = [sys.executable, "-c", ASK, str(tmp_path / "model.gguf"), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    answers = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert len(answers) == len(TEXTS), done.stderr[-2000:]
    model, tokenizer = read_checkpoint(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text, answer in zip(TEXTS, answers, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert answer["usage"]["prompt_tokens"] == len(ids)
        with torch.inference_mode():
            log_p_V = model.logits(model(torch.tensor([ids])).hidden_BSD[:, -1:])[0, 0].log_softmax(-1)
        likeliest = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        assert likeliest[0]["id"] == int(log_p_V.argmax())
        assert len(likeliest) == 10
        for one in likeliest:
            assert one["logprob"] == pytest.approx(float(log_p_V[one["id"]]), abs=1e-4)


def test_a_tokenizer_that_llama_cpp_would_read_otherwise_is_refused(tmp_path):
    folder = released(tmp_path / "released", 3, False)
    with pytest.raises(ReleaseError, match=r"no expression that splits text as .*tokenizer\.digits = 1"):
        export(folder, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_the_export_without_arguments_says_how_it_is_used(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gguf"])
    monkeypatch.delitem(sys.modules, "tasks.evaluate.gguf")
    with pytest.raises(SystemExit, match=r"usage: python -m .* FOLDER FILE\.gguf"):
        runpy.run_module("tasks.evaluate.gguf", run_name="__main__")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"q_lora_rank": None}, "queries without a latent"),
        ({"rms_norm_eps": 1e-5}, r"takes rms_norm_eps \(1e-05\) for the norms of latents"),
    ],
)
def test_a_model_that_llama_cpp_does_not_know_is_refused(tmp_path, changes, said):
    write_checkpoint(small_model(**changes), tmp_path / "released", False, 1 << 30)
    shutil.copyfile(released(tmp_path / "other", 1, False) / "tokenizer.json", tmp_path / "released" / "tokenizer.json")
    with pytest.raises(ReleaseError, match=said):
        export(tmp_path / "released", tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()
