"""Checkpoints are whole or not there, whatever the disk or a kill does to them."""

import errno
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.sizes import model_preset
from model.transformer import Transformer
from training import checkpoint
from training.checkpoint import CheckpointError
from training.muonclip import MuonClip

CONFIG = model_preset("tiny", num_hidden_layers=2)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three checkpoints, of three different models."""
    for number in (1, 2, 10):
        model = Transformer(CONFIG, seed=number)
        optimizer = MuonClip.for_model(model)
        state = {"update": number}
        checkpoint.save(tmp_path / f"update-{number:08d}", model, state, optimizer.state_dict())
    return tmp_path


def test_what_is_saved_is_what_is_loaded(root: Path) -> None:
    newest = checkpoint.newest(root)
    assert newest == root / "update-00000010"
    assert checkpoint.load_state(newest)["update"] == 10
    saved = Transformer(CONFIG, seed=10)
    loaded = checkpoint.load_model(newest)
    other = Transformer(CONFIG, seed=0)
    checkpoint.load_weights(newest, other)
    for name, tensor in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
        assert torch.equal(other.state_dict()[name], tensor)
    tokens = torch.arange(12)[None]
    assert torch.equal(loaded(tokens).hidden_BSD, saved(tokens).hidden_BSD)
    optimizer = MuonClip.for_model(other)
    optimizer.load_state_dict(checkpoint.load_optimizer_state(newest))
    assert not list(root.glob(".*"))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer-0-of-1.safetensors", "state.json", "config.json"])
@pytest.mark.parametrize("harm", ["bit", "cut", "gone"])
def test_a_damaged_checkpoint_is_set_aside_by_name(
    root: Path, name: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = root / "update-00000010" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(content if harm == "bit" else content[:-1])
    assert checkpoint.newest(root) == root / "update-00000002"
    assert name in caplog.text
    assert "update-00000010" in caplog.text
    assert (root / "update-00000010.corrupt").is_dir()
    assert checkpoint.checkpoints(root) == [root / "update-00000001", root / "update-00000002"]


def test_without_a_manifest_it_is_no_checkpoint(root: Path) -> None:
    for directory in checkpoint.checkpoints(root):
        (directory / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is usable.*remove them all to start over"):
        checkpoint.newest(root)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        checkpoint.load_model(root / "update-00000010.corrupt")


def test_nothing_yet_is_no_error(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None


def test_half_written_ones_are_never_seen_and_swept_up(root: Path) -> None:
    shutil.copytree(root / "update-00000010", root / ".update-00000020.partial")
    assert checkpoint.newest(root) == root / "update-00000010"
    checkpoint.prune(root, keep=2)
    assert sorted(path.name for path in root.iterdir()) == ["update-00000002", "update-00000010"]


def test_a_full_disk_leaves_the_checkpoint_before(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = load_file(root / "update-00000010" / checkpoint.WEIGHTS)
    monkeypatch.setattr(checkpoint, "save_file", full)
    for name in ("update-00000010", "update-00000011"):
        with pytest.raises(CheckpointError, match=f"could not write checkpoint {name}: .*No space left"):
            checkpoint.save(root / name, Transformer(CONFIG), {"update": 11})
    assert checkpoint.newest(root) == root / "update-00000010"
    for name, tensor in load_file(root / "update-00000010" / checkpoint.WEIGHTS).items():
        assert torch.equal(tensor, before[name])


def test_another_models_weights_are_refused(root: Path) -> None:
    other = Transformer(CONFIG.replace(num_hidden_layers=3))
    with pytest.raises(CheckpointError, match="update-00000010 holds another model"):
        checkpoint.load_weights(root / "update-00000010", other)
