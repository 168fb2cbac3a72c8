"""The model that judges sentences: its readings, on small drawn weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.engines.engine import EngineError, PromptRefused
from model.engines.one_thread import OneThread
from model.engines.support import BEFORE, BETWEEN, Reading, Support
from model.engines.weights import FIDELITY_TOKENS
from tests.model.engines.tiny import INNER, WIDTH, base, taught

ONE, OTHER = "The fire began in May. Then it spared a barn.", "In May a fire began."
ONES, OTHERS = [(0, 22), (23, 45)], [(0, 20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("support")
    base(folder / "base.gguf")
    taught(folder / "taught")
    return folder


@pytest.fixture(scope="module")
def support(folder: Path) -> Support:
    return Support(folder / "base.gguf", sorted((folder / "taught").iterdir()), OneThread())


def read(support: Support) -> Reading:
    return replace(support.read(ONE, ONES, OTHER, OTHERS), seconds=0.0)


def test_each_sentence_of_both_has_its_place_and_its_logit(support: Support) -> None:
    found = read(support)
    assert [(one.start, one.end) for one in found.lost] == ONES
    assert [(one.start, one.end) for one in found.unsupported] == OTHERS
    assert support.read(ONE, ONES, OTHER, OTHERS).seconds > 0
    back = support.read(OTHER, OTHERS, ONE, ONES)
    assert (back.lost, back.unsupported) == (found.unsupported, found.lost)


def test_in_bfloat16_it_says_nearly_the_same(folder: Path, support: Support) -> None:
    other = Support(folder / "base.gguf", sorted((folder / "taught").iterdir()), OneThread(), "bfloat16")
    found, due = read(other), read(support)
    assert found.wrong == pytest.approx(due.wrong, rel=0.03)  # products of 8 bits, two layers of them
    assert found.wrong != due.wrong
    assert read(other) == found


def test_a_logit_is_that_of_the_sentences_last_token(support: Support) -> None:
    """Nothing that follows a sentence changes it, and what stands in it does."""
    first = support.read(OTHER, OTHERS, ONE, ONES).unsupported[0].unsupported
    assert support.read(OTHER, OTHERS, ONE[:22], ONES[:1]).unsupported[0].unsupported == pytest.approx(first, abs=1e-4)
    other = support.read(OTHER, OTHERS, ONE.replace("May", "Mai"), ONES).unsupported[0].unsupported
    assert abs(other - first) > 1e-3


def test_the_verdict_is_the_weighed_sum(support: Support) -> None:
    found = read(support)
    sides = [max(one.unsupported for one in side) for side in (found.unsupported, found.lost)]
    known = 0.5 + float(sides[0]) + 2 * float(sides[1])
    model, (weight, bias) = support._model, support._head

    def worst(premise: str, text: str) -> float:
        code = support._prompts._tokenizer.encode
        head = [*code(BEFORE).ids, *code(premise).ids, *code(BETWEEN).ids]
        states = model.states(torch.tensor([[*head, *code(text).ids]]))[0, len(head) :]
        return float((states @ weight[0] + bias[0]).max())

    assert found.wrong == pytest.approx(known + 3 * worst(ONE, OTHER) + 4 * worst(OTHER, ONE), abs=1e-3)


def test_the_same_pair_reads_the_same_whatever_was_read_before_and_from_many_threads(support: Support) -> None:
    expected = read(support)
    support.read("Something else. " * 20, [(0, 15)], OTHER, OTHERS)
    assert read(support) == expected
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: read(support), range(24))) == {expected}


@pytest.mark.parametrize("text", ["", " ", "\u0301", "<|im_end|>"])
def test_odd_texts_have_readings(support: Support, text: str) -> None:
    found = support.read(text, [(0, len(text))] if text else [], OTHER, OTHERS)
    assert len(found.unsupported) == 1
    assert found.wrong == found.wrong


def test_a_pair_that_is_too_long_is_refused(support: Support) -> None:
    with pytest.raises(PromptRefused, match=f"{FIDELITY_TOKENS} can be read"):
        support.read("1" * FIDELITY_TOKENS, [(0, FIDELITY_TOKENS)], OTHER, OTHERS)


def test_weights_of_another_size_or_none_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    for parts in (taught(tmp_path / "wide", width=2 * WIDTH), [tmp_path / "none.safetensors"], []):
        with pytest.raises(EngineError):
            Support(folder / "base.gguf", parts, OneThread())
    with pytest.raises(EngineError, match="another size"):
        Support(folder / "base.gguf", taught(tmp_path / "wide", width=2 * WIDTH), OneThread())
    with pytest.raises(EngineError, match="layers"):
        Support(folder / "base.gguf", taught(tmp_path / "deep", layers=3), OneThread())
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError, match="cannot be read"):
        Support(folder / "base.gguf", [tmp_path / "torn.safetensors"], OneThread())


def test_what_was_taught_changes_the_reading(folder: Path, support: Support, tmp_path: Path) -> None:
    parts = taught(tmp_path / "taught")
    for part in parts:
        tensors = load_file(part)
        save_file({name: x * 0 if name.endswith("ffn_down.up_scale") else x for name, x in tensors.items()}, part)
    plain = Support(folder / "base.gguf", parts, OneThread())
    assert abs(read(plain).wrong - read(support).wrong) > 1e-3
    assert plain._model.layers[0].matrices["ffn_down"].shape == (WIDTH, INNER)
