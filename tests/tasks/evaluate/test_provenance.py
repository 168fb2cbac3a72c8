"""What goes beside a released folder: software, time, energy and cost, checksums, and a signature that holds."""

from __future__ import annotations

import hashlib
import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tasks.artifact import Step
from tasks.evaluate.checkpoint import ReleaseError
from tasks.evaluate.config import ReleaseConfig
from tasks.evaluate.provenance import bill_of_materials, sign
from tasks.evaluate.release import ancestors, checkpoint_folder, lineage, run
from tasks.launch import Execution
from tests.tasks.evaluate.conftest import Literals, publish_model, publish_tokenizer, small_model


class Snapshot(Literals):
    """A stage that has been refreshed."""

    number: int


def step(root: Path, **config) -> Step:
    """A release of a corpus of two snapshots."""
    corpus = None
    for number in (1, 2):
        corpus = Step("corpus", Snapshot(number=number), str(root), (corpus,) if corpus else ())
        source = {"documents": number, "bytes": 10, "licence": "CC0-1.0", "origin": "a shelf"}
        corpus.publish({"documents": number, "bytes": 10, "by_source": {"books": source}})
    dialogues = Step("dialogues", Literals(), str(root))
    dialogues.publish({"dialogues": 9, "licences": {"GPL-3.0-only": 7}})
    model = publish_model(root, "rl", small_model(2), {"int4": True}, [corpus, dialogues])
    made = Step(
        "release", ReleaseConfig(name="tiny", verify=False, **config), str(root), (model, publish_tokenizer(root))
    )
    return made.begin()


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "release"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", path], check=True)
    return path


def signed(folder: Path) -> bool:
    command = ["ssh-keygen", "-Y", "check-novalidate", "-n", "file", "-s", folder / "SHA256SUMS.sig"]
    given = (folder / "SHA256SUMS").read_bytes()
    return subprocess.run(command, input=given, capture_output=True, check=False).returncode == 0


def test_a_package_half_removed_is_passed_over(tmp_path, monkeypatch):
    import importlib_metadata  # noqa: F401  with Prefect: once imported it finds packages too, in its own way

    (tmp_path / "~umpy-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    found = bill_of_materials("tiny", "1", "other", {})["components"]
    assert "torch" in {one["name"] for one in found}


def test_a_folder_is_accounted_for_and_signed(tmp_path, key):
    made = step(tmp_path)
    artifact = run(made, Execution(signing_key=str(key), watts=250, nodes=4))
    for variant in ("bf16", "int4"):
        folder = checkpoint_folder(artifact, variant)
        sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
        assert sums == {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.iterdir()
            if not path.name.startswith("SHA256SUMS")
        }
        assert {"model.safetensors", "RUN.md", "DATA.md", "sbom.cdx.json"} <= set(sums)
        assert signed(folder)
    account = (folder / "RUN.md").read_text()
    assert "250 W" in account
    assert "4 of them" in account
    assert all(f"| {each.name} | `{each.fingerprint}` |" in account for each in ancestors(made))
    (folder / "SHA256SUMS").write_text("0" * 64 + "  model.safetensors\n")
    assert not signed(folder)


def test_what_was_not_signed_is_not_published_and_the_same_command_signs_it(tmp_path, key, monkeypatch):
    made, asked = step(tmp_path), []

    def late(file: Path, own: Path) -> None:
        """The owner of a key on a card touches it for `check_key` and for bf16, and then has gone."""
        asked.append(file.parent.name)
        if asked[1:] == ["bf16", "int4"]:
            raise ReleaseError("ssh-keygen did not sign")
        sign(file, own)

    monkeypatch.setattr("tasks.evaluate.provenance.sign", late)
    with pytest.raises(ReleaseError, match="did not sign"):
        run(made, Execution(signing_key=str(key)))
    assert made.artifact() is None
    artifact = run(made, Execution(signing_key=str(key)))
    assert made.artifact() == artifact
    assert all(signed(checkpoint_folder(artifact, variant)) for variant in ("bf16", "int4"))


def test_the_bill_names_the_model_its_packages_and_its_data(tmp_path):
    folder = checkpoint_folder(run(step(tmp_path, licence="Apache-2.0"), Execution()), "bf16")
    assert not (folder / "SHA256SUMS.sig").exists()
    bill = json.loads((folder / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "tiny"
    assert bill["metadata"]["component"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    parts = {part["bom-ref"]: part for part in bill["components"]}
    assert len(parts) == len(bill["components"])
    safetensors = parts[f"pkg:pypi/safetensors@{version('safetensors')}"]
    assert safetensors["version"] == version("safetensors")
    assert "Apache" in json.dumps(safetensors["licenses"])
    assert parts["data:books"]["licenses"] == [{"license": {"name": "CC0-1.0"}}]
    assert parts["data:tools of servers, GPL-3.0-only"]["licenses"] == [{"license": {"name": "GPL-3.0-only"}}]
    assert "| GPL-3.0-only | 7 |" in (folder / "DATA.md").read_text()


def test_of_several_snapshots_the_card_tells_of_the_last(tmp_path):
    assert lineage(step(tmp_path))["corpus"].statistics["documents"] == 2


def test_a_key_that_does_not_sign_is_said_before_anything_is_made(tmp_path):
    made = step(tmp_path)
    with pytest.raises(ReleaseError, match=r"execution\.signing_key = .*nowhere does not sign"):
        run(made, Execution(signing_key=str(tmp_path / "nowhere")))
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "words", "-f", locked], check=True)
    with pytest.raises(ReleaseError, match="without a passphrase"):
        run(made, Execution(signing_key=str(locked)))
    assert made.artifact() is None
    assert not list(Path(made.uri).glob("parts/*"))
