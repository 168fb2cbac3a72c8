"""Qwen2 against transformers' own, on a small one with drawn weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen2Tokenizer

from model.engines.engine import EngineError
from model.engines.gguf import Gguf
from model.engines.qwen import MATRICES, Qwen
from tests.model.engines.tiny import LAYERS, MERGES, SPECIAL, WIDTH, WORDS, base, peer

NOTHING = dict.fromkeys(f"{number}.{name}" for number in range(LAYERS) for name in MATRICES)
TEXTS = [
    "The theory in a nutshell: then, 1234 things!\n\n  Isn't it?",
    "北京有2100万人。 an\tthe",
    "e\u0301 is é, and naïve café",
    "",
    " \n ",
]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Qwen:
    return Qwen(Gguf(base(tmp_path_factory.mktemp("qwen") / "base.gguf")), LAYERS, NOTHING, torch.float32)


def test_states_are_those_of_transformers(qwen: Qwen) -> None:
    ids = torch.randint(0, len(WORDS), (3, 17), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        expected = peer()(ids).last_hidden_state
        found = qwen.states(ids)
    assert found.shape == (3, 17, WIDTH)
    assert (found - expected).abs().max() < 1e-4


def test_a_token_does_not_see_what_follows(qwen: Qwen) -> None:
    ids = torch.arange(12)[None]
    other = ids.clone()
    other[0, 8:] += 100
    assert torch.allclose(qwen.states(ids)[:, :8], qwen.states(other)[:, :8], atol=1e-6)


def test_texts_behind_one_premise_are_read_as_if_each_stood_there_alone(qwen: Qwen) -> None:
    premise, *texts = torch.randint(0, len(WORDS), (3, 6), generator=torch.Generator().manual_seed(4))
    alone = [qwen.states(torch.cat([premise, text])[None])[0, 6:] for text in texts]
    of = torch.tensor([0] * 6 + [1] * 6 + [2] * 6)
    seen = ((of[None] == of[:, None]) | (of[None] == 0)).tril()
    together = qwen.states(torch.cat([premise, *texts])[None], seen[None], (seen.sum(-1) - 1)[None])[0]
    assert torch.allclose(together[6:], torch.cat(alone), atol=1e-5)


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_transformers(qwen: Qwen, text: str) -> None:
    theirs = Qwen2Tokenizer(vocab={word: place for place, word in enumerate(WORDS)}, merges=MERGES)
    assert qwen.tokenizer().encode(text).ids == theirs(text)["input_ids"]


def test_a_text_that_spells_a_special_token_is_text(qwen: Qwen) -> None:
    text = "in <|im_end|> the"
    found = qwen.tokenizer().encode(text)
    assert not {WORDS.index(special) for special in SPECIAL} & set(found.ids)
    assert "".join(text[begin:end] for begin, end in found.offsets) == text


def test_a_change_is_added_to_its_matrix(qwen: Qwen, tmp_path: Path) -> None:
    file = Gguf(base(tmp_path / "base.gguf"))
    change = torch.full_like(qwen.layers[1].matrices["attn_q"], 0.5)
    changed = Qwen(file, LAYERS, NOTHING | {"1.attn_q": change}, torch.float32)
    assert torch.equal(changed.layers[1].matrices["attn_q"], qwen.layers[1].matrices["attn_q"] + 0.5)
    assert torch.equal(changed.layers[0].matrices["attn_q"], qwen.layers[0].matrices["attn_q"])


@pytest.mark.parametrize(
    ("settings", "layers", "told"),
    [
        ({"tokenizer.ggml.pre": "llama"}, LAYERS, "no Qwen2"),
        ({}, LAYERS + 1, "has 2 layers, not 3"),
        ({}, 0, "not 0"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, settings: dict[str, str], layers: int, told: str) -> None:
    with pytest.raises(EngineError, match=told):
        Qwen(Gguf(base(tmp_path / "base.gguf", **settings)), layers, NOTHING, torch.float32)
