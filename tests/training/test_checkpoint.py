"""Checkpoints are whole or not there, whatever the disk or a kill does to them."""

import contextlib
import json
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from model.sizes import model_preset
from model.transformer import Transformer
from training import checkpoint, checkpoint_writer
from training.checkpoint import CheckpointError
from training.checkpoint_writer import Writer
from training.config import RetentionConfig
from training.muonclip import MuonClip

CONFIG = model_preset("tiny", num_hidden_layers=2)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three checkpoints, of three different models."""
    for number in (1, 2, 10):
        model = Transformer(CONFIG, seed=number)
        optimizer = MuonClip.for_model(model)
        state = {"update": number}
        checkpoint_writer.save(tmp_path / f"update-{number:08d}", model, state, optimizer.state_dict())
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


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "config.json", "index.json"]
)
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
    for _ in range(2):  # the next start must not begin anew either
        with pytest.raises(CheckpointError, match=r"no checkpoint in .* is usable.*remove them all to start over"):
            checkpoint.newest(root)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        checkpoint.load_model(root / "update-00000010")


def test_a_flipped_bit_of_the_manifest_is_found_wherever_it_is(root: Path) -> None:
    path = root / "update-00000010" / "manifest.json"
    content = path.read_bytes()
    for at in range(0, len(content), 3):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CheckpointError, match="update-00000010"):
            checkpoint.verify(path.parent)


def test_a_last_resort_is_taken_last(root: Path) -> None:
    assert checkpoint.newest(root, {10}) == root / "update-00000002"
    (root / "update-00000002" / "state.json").unlink()
    assert checkpoint.newest(root, {10}) == root / "update-00000001"
    assert checkpoint.newest(root, {10, 1}) == root / "update-00000010"
    assert (root / "update-00000002.corrupt").is_dir()


def test_a_checkpoint_without_an_index_is_of_an_older_version(root: Path) -> None:
    """Its files are whole: it is refused and not set aside. What it has of the model is read by the headers."""
    newest = root / "update-00000010"
    manifest = json.loads((newest / "manifest.json").read_text())
    del manifest["files"]["index.json"]
    (newest / "manifest.json").write_text(json.dumps(manifest))
    (newest / "index.json").unlink()
    assert checkpoint.newest(root) == newest
    with pytest.raises(CheckpointError, match="update-00000010 was written by an older version"):
        checkpoint.load_weights(newest, Transformer(CONFIG))
    with pytest.raises(CheckpointError, match="update-00000010 was written by an older version"):
        checkpoint.load_optimizer_state(newest)
    weights = checkpoint.load_model(newest).state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in Transformer(CONFIG, seed=10).state_dict().items())


def test_nothing_yet_is_no_error(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None


def test_half_written_ones_are_never_seen_and_swept_up(root: Path) -> None:
    shutil.copytree(root / "update-00000010", root / ".update-00000020.partial")
    assert checkpoint.newest(root) == root / "update-00000010"
    checkpoint.prune(root, RetentionConfig(newest=2))
    assert sorted(path.name for path in root.iterdir()) == ["update-00000002", "update-00000010"]


@contextlib.contextmanager
def full_disk(bytes_left: int) -> Iterator[None]:
    """No file can become longer than so many bytes: writes fail as on a full disk, by an error of the system's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _written(writer: Writer, directory: Path, background: bool) -> None:
    writer.save(directory, Transformer(CONFIG), {"update": 11}, background=background)
    writer.wait()


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("bytes_left", [0, 20_000])
def test_a_full_disk_leaves_the_checkpoint_before(root: Path, background: bool, bytes_left: int) -> None:
    before = load_file(root / "update-00000010" / "model.safetensors")
    for name in ("update-00000010", "update-00000011"):
        writer = Writer()
        with (
            full_disk(bytes_left),
            pytest.raises(CheckpointError, match=rf"could not write checkpoint {name}: .*(too large|space)"),
        ):
            _written(writer, root / name, background)
        assert not writer.failed
        assert not list(root.glob(".*"))
    assert checkpoint.newest(root) == root / "update-00000010"
    for name, tensor in load_file(root / "update-00000010" / "model.safetensors").items():
        assert torch.equal(tensor, before[name])


def test_what_is_written_in_the_background_is_the_state_of_its_moment(tmp_path: Path) -> None:
    model = Transformer(CONFIG, seed=1)
    optimizer = MuonClip.for_model(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    momenta = {name: torch.as_tensor(tensor).clone() for name, tensor in optimizer.state_dict().items()}
    writer, complete = Writer(), []
    directory = tmp_path / "update-00000001"
    state = {"update": 1}
    writer.save(
        directory,
        model,
        state,
        optimizer.state_dict(),
        background=True,
        then=lambda: complete.append(directory.exists()),
    )
    state["update"] = 2
    for tensor in (*model.state_dict().values(), *optimizer.state_dict().values()):
        tensor.add_(1)
    writer.wait()
    assert complete == [True]
    assert checkpoint.load_state(directory)["update"] == 1
    assert all(torch.equal(before[name], value) for name, value in load_file(directory / "model.safetensors").items())
    saved = checkpoint.load_optimizer_state(directory)
    assert saved.keys() == momenta.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in momenta.items())


def test_the_next_save_tells_of_the_write_that_failed(tmp_path: Path) -> None:
    writer, model = Writer(), Transformer(CONFIG)
    with full_disk(20_000):
        writer.save(tmp_path / "update-00000001", model, {}, background=True)
        while not writer.failed:
            time.sleep(0.001)
    with pytest.raises(CheckpointError, match="could not write checkpoint update-00000001"):
        writer.save(tmp_path / "update-00000002", model, {})
    writer.save(tmp_path / "update-00000003", model, {})
    assert checkpoint.checkpoints(tmp_path) == [tmp_path / "update-00000003"]


@given(
    st.sets(st.integers(1, 60)),
    st.integers(1, 5),
    st.none() | st.integers(1, 20),
    st.booleans(),
    st.sets(st.integers(1, 60)),
)
def test_retention(updates: set[int], newest: int, every: int | None, ends: bool, stage_ends: set[int]) -> None:
    policy = RetentionConfig(newest=newest, every=every, stage_ends=ends)
    kept = policy.kept(sorted(updates), stage_ends)
    assert kept <= updates
    assert set(sorted(updates)[-newest:]) <= kept
    for update in updates - set(sorted(updates)[-newest:]):
        assert (update in kept) == bool((every and update % every == 0) or (ends and update in stage_ends))
    # what was deleted once is not missed later: the policy may be applied after each checkpoint or only at the end
    later = kept | {100}
    assert policy.kept(sorted(later), stage_ends) == policy.kept(sorted(updates | {100}), stage_ends)


def test_another_models_weights_are_refused(root: Path) -> None:
    other = Transformer(CONFIG.replace(num_hidden_layers=3))
    with pytest.raises(CheckpointError, match="update-00000010 holds another model"):
        checkpoint.load_weights(root / "update-00000010", other)
