"""Text from a released folder: whole, in pieces, within the window; failures reach the caller."""

from __future__ import annotations

import shutil

import pytest
from tokenizers import Tokenizer

from model.chat import Chat
from model.storage import sha256_file
from tasks.artifact import Artifact, Step
from tasks.evaluate.checkpoint import CHECKSUMS, ReleaseError, read_checkpoint
from tasks.evaluate.config import ReleaseConfig
from tasks.evaluate.generation import Released
from tasks.evaluate.release import checkpoint_folder, release
from tests.tasks.evaluate.conftest import Literals, publish_model, publish_tokenizer, small_model


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Artifact:
    root = tmp_path_factory.mktemp("generation")
    rl = publish_model(root, "rl", small_model(2, initializer_range=0.4))
    tokenizer = publish_tokenizer(root)
    step = Step("release", ReleaseConfig(verify=False), str(root), (rl, tokenizer))
    return release(step, rl.require(), tokenizer.require())


def test_pieces_joined_are_the_text_and_the_likeliest_tokens_those_of_a_plain_forward(released):
    import torch

    folder = checkpoint_folder(released, "bf16")
    one, pieces = Released.load(folder), list[str]()
    said = one.generate(one.prompt("What is", chat=False), 12, on_text=pieces.append)
    assert "".join(pieces) == said == one.generate(one.prompt("What is", chat=False), 12)
    model, chat = read_checkpoint(folder), Chat(Tokenizer.from_file(str(folder / "tokenizer.json")))
    ids = chat.encode("What is")
    start = len(ids)
    with torch.no_grad():
        while len(ids) < start + 12:
            ids.append(int(model.logits(model(torch.tensor([ids])).hidden_BSD)[0, -1].argmax()))
            if ids[-1] in (chat.stop, model.config.eos_token_id):
                ids.pop()
                break
    assert "".join(pieces) == chat.decode(ids[start:])


def test_a_seed_names_a_sample_and_the_checkpoints_differ(released):
    def text(variant="bf16", temperature=1.5, seed=0) -> str:
        one = Released.load(checkpoint_folder(released, variant))
        return one.generate(one.prompt("hello"), 16, temperature, seed)

    assert text(seed=1) == text(seed=1)
    assert text(seed=1) != text(seed=2)
    assert text(variant="int4", temperature=0.0) != "" or text(temperature=0.0) != ""


def test_a_message_is_a_user_turn(released):
    model = Released.load(checkpoint_folder(released, "int4"))
    assert (
        model.chat.decode(model.prompt("hi"))
        == "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|>"
    )
    assert model.chat.decode(model.prompt("hi", chat=False)) == "hi"
    assert model.prompt("", chat=False) == [model.model.config.bos_token_id]


def test_the_window_is_kept(released):
    model = Released.load(checkpoint_folder(released, "bf16"))
    window = model.model.config.max_position_embeddings
    prompt = model.chat.encode("a" * 4) * 200
    assert model.generate(prompt[: window - 3], 100) is not None
    with pytest.raises(ValueError, match=f"window {window}: shorten it"):
        model.generate(prompt[:window], 1)


def test_what_is_no_release_is_refused(tmp_path):
    other = Step("tokens", Literals(), str(tmp_path))
    with pytest.raises(ReleaseError, match="holds no 'bf16' checkpoint"):
        checkpoint_folder(other.publish({}), "bf16")
    with pytest.raises(ReleaseError, match=r"has no tokenizer\.json"):
        Released.load(tmp_path)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_copy_that_broke_off_is_refused(released, tmp_path, file):
    """Every file is there at its full length, and the end of one was never written."""
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint_folder(released, "bf16"), folder)
    lines = [f"{sha256_file(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / CHECKSUMS).write_text("".join(lines) + f"{'0' * 64}  ../elsewhere.safetensors\n")
    Released.load(folder)
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[:-100] + (b" " if file.endswith("json") else bytes(1)) * 100)
    with pytest.raises(ReleaseError, match=f"{file} is not the file that SHA256SUMS"):
        Released.load(folder)
    (folder / CHECKSUMS).unlink()
    if file == "model.safetensors":
        Released.load(folder)
