"""GGUF: every kind of block that a Q4_K_M has, and files that are damaged or lie."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from model.engines.engine import EngineError
from model.engines.gguf import Gguf
from tests.model.engines.tiny import write

DRAWN = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    settings = {"a.text": "Grüße", "a.number": 7, "a.share": 0.5, "a.words": ["one", "", "三"], "a.places": [1, 2, 3]}
    file = Gguf(
        write(tmp_path / "x.gguf", {"whole": DRAWN, "line": DRAWN[0, :5], "cube": DRAWN.reshape(3, 2, 256)}, settings)
    )
    assert {name: file.settings[name] for name in settings} == settings
    assert (file.tensor("whole").numpy() == DRAWN).all()
    assert (file.tensor("line").numpy() == DRAWN[0, :5]).all()
    assert (file.tensor("cube").numpy() == DRAWN.reshape(3, 2, 256)).all()


@pytest.mark.parametrize(("kind", "bits"), [("Q8_0", 8), ("Q5_0", 5)])
def test_rounded_blocks_are_as_near_as_their_bits(tmp_path: Path, kind: str, bits: int) -> None:
    kind_of = GGMLQuantizationType[kind]
    tensors = {"x": (quants.quantize(DRAWN, kind_of), kind_of), "after": DRAWN}
    file = Gguf(write(tmp_path / "x.gguf", tensors))
    blocks = DRAWN.reshape(-1, 32)
    step = np.abs(blocks).max(axis=1, keepdims=True) / 2 ** (bits - 1)
    found = file.tensor("x").numpy()
    assert found.shape == DRAWN.shape
    assert (np.abs(found.reshape(-1, 32) - blocks) <= 1.05 * step).all()
    assert (file.tensor("after").numpy() == DRAWN).all()


def test_a_block_of_q4_k_by_hand(tmp_path: Path) -> None:
    """d = 2, dmin = 0, every scale 1, and nibbles that say 3 and 5 in turns of 32."""
    block = np.float16([2, 0]).tobytes() + bytes([1] * 4 + [0] * 4 + [1] * 4) + b"\x53" * 128
    blocks = np.frombuffer(block * 4, np.uint8).reshape(2, 288)
    found = Gguf(write(tmp_path / "x.gguf", {"x": (blocks, GGMLQuantizationType.Q4_K)})).tensor("x").numpy()
    assert found.shape == (2, 512)
    assert (found == np.tile(np.repeat([6.0, 10.0], 32), 8)).all()


def named(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + named(b"a")
TENSOR = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + named(b"x")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "cannot be read"),
        (b"GGML" + bytes(60), "does not begin as one"),
        (b"GGUF", "ends after 4 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63), "ends after"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 0), "ends after"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62), "a text of"),
        (HEAD + struct.pack("<IQ", 8, 1 << 20), "ends after"),
        (HEAD + struct.pack("<I", 99), "kind 99"),
        (HEAD + struct.pack("<IIQ", 9, 4, 1 << 60), "an array of"),
        (HEAD + struct.pack("<IIQ", 9, 4, 1 << 20), "ends after"),
        (HEAD + struct.pack("<IIQ", 9, 9, 1), "kind 9"),
        (TENSOR + struct.pack("<I", 0), "0 dimensions"),
        (TENSOR + struct.pack("<I", 1 << 31), "dimensions"),
        (TENSOR + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0), "numbers from byte 0 on"),
        (TENSOR + struct.pack("<IQIQ", 1, 0, 0, 0), "0 numbers"),
        (TENSOR + struct.pack("<IQIQ", 1, 4, 0, 1 << 63), "from byte"),
    ],
)
def test_a_file_that_lies_is_one_sentence(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(EngineError, match=told) as error:
        Gguf(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("shape", "kind", "told"),
    [((4,), 0, "ends within it"), ((4,), 77, "77"), ((33,), 8, "no whole blocks"), ((4,), 26, "cannot be read")],
)
def test_a_tensor_that_is_not_there_is_one_sentence(tmp_path: Path, shape: tuple[int], kind: int, told: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(TENSOR + struct.pack("<IQIQ", 1, *shape, kind, 0) + bytes(8))
    file = Gguf(path)
    with pytest.raises(EngineError, match=told):
        file.tensor("x")
    with pytest.raises(EngineError, match="no tensor y"):
        file.tensor("y")


@pytest.mark.parametrize("step", [0, 7])
def test_a_step_that_no_file_has(tmp_path: Path, step: int) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + named(b"general.alignment") + struct.pack("<II", 4, step))
    with pytest.raises(EngineError, match="aligned"):
        Gguf(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_off(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "x.gguf", {"x": DRAWN}, {"a.words": ["one"] * 50})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(EngineError, match="ends"):
        Gguf(path).tensor("x")
