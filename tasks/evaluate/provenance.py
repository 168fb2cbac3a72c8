"""What goes with a released folder and is no part of its identity: the software it was made with, time, energy and
cost, checksums, and a signature. Other machines and keys give other bytes of these, and the same release."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from model.convert import write_json
from tasks.artifact import Artifact, Step, sha256_file
from tasks.evaluate.card import table
from tasks.evaluate.checkpoint import CHECKSUMS, ReleaseError
from tasks.launch import Execution

BILL, RUN = "sbom.cdx.json", "RUN.md"
NAMESPACE = "file"
"""What ssh-keygen calls the purpose of a signature; its manual's name for files."""
PATIENCE = 60  # seconds that signing may take: a key on a card waits for its owner's touch


def accompany(folder: Path, variant: str, release: Artifact, made_by: Sequence[Step], execution: Execution) -> None:
    """Write the bill of materials, the account of the run, the checksums and, where a key is given, the signature."""
    name, licence = release.manifest["config"]["name"], release.manifest["config"]["licence"]
    corpus, dialogues = (
        next((step.require().statistics for step in made_by if step.name == name), {})
        for name in ("corpus", "dialogues")
    )
    sources = corpus.get("by_source", {}) | {
        f"tools of servers, {licence}": {"origin": f"in {count} dialogues", "licence": licence}
        for licence, count in dialogues.get("licences", {}).items()
    }
    write_json(folder / BILL, bill_of_materials(name, release.fingerprint, licence, sources))
    (folder / RUN).write_text(account(name, made_by, execution), encoding="utf-8")
    known = {part.key.removeprefix(f"{variant}/"): part.sha256 for part in release.parts(variant)}
    files = sorted(path.name for path in folder.iterdir() if not path.name.startswith((CHECKSUMS, ".")))
    lines = [f"{known.get(file) or sha256_file(folder / file)}  {file}\n" for file in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
    if execution.signing_key is not None:
        sign(folder / CHECKSUMS, Path(execution.signing_key))


def bill_of_materials(name: str, version: str, licence: str, sources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """CycloneDX 1.6: the model, the packages of the environment that wrote it, and the sources of its data."""
    packages = {called: each for each in distributions() if (called := _called(each))}
    components = [_package(each) for _, each in sorted(packages.items(), key=lambda item: item[0].lower())]
    for source, entry in sorted(sources.items()):
        data = {"type": "data", "bom-ref": f"data:{source}", "name": source, "description": entry.get("origin") or ""}
        components.append(data | {"licenses": [{"license": {"name": entry.get("licence") or "unknown"}}]})
    model = {"type": "machine-learning-model", "bom-ref": "model", "name": name, "version": version}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": model | {"licenses": [{"license": {"name": licence}}]}},
        "components": components,
    }


def _called(package: Distribution) -> str | None:
    """Its name; None for what pip left half removed. `importlib_metadata`, where imported, finds packages too, and
    raises."""
    try:
        return package.metadata["Name"]
    except FileNotFoundError:
        return None


def _package(package: Distribution) -> dict[str, Any]:
    """A package by its own metadata; what it does not say is left out."""
    said = cast(Message, package.metadata)  # which it is: importlib's own type lacks half of its methods
    name = said["Name"].lower().replace("_", "-")
    address = f"pkg:pypi/{name}@{quote(package.version)}"
    found = {"type": "library", "bom-ref": address, "name": said["Name"], "version": package.version, "purl": address}
    if expression := said.get("License-Expression"):
        return found | {"licenses": [{"expression": expression}]}
    named = [text.rpartition(" :: ")[2] for text in said.get_all("Classifier", []) if text.startswith("License :: ")]
    lines = (said.get("License") or "").strip().splitlines()
    named = named or [line for line in lines if len(lines) == 1]  # some packages put the whole text there
    return found | ({"licenses": [{"license": {"name": licence}} for licence in named]} if named else {})


def account(name: str, made_by: Sequence[Step], execution: Execution) -> str:
    """RUN.md: time and cost of every stage as its manifest has them, and energy by an assumption that is stated."""
    return "\n".join(_account(name, made_by, execution)) + "\n"


def _account(name: str, made_by: Sequence[Step], execution: Execution) -> Iterator[str]:
    yield f"# How {name} was made\n"
    yield (
        "Time: of every attempt that a stage's manifest counts, by the clock. Energy is not measured: it is this time "
        f"at {execution.watts:g} W a machine (`execution.watts`), {execution.nodes} of them while a network trains and "
        "one otherwise. Cost: what the manifests say, from the prices that were set then.\n"
    )
    rows, hours, energy, money = [], 0.0, 0.0, 0.0
    for step in sorted(made_by, key=lambda step: step.require().manifest["finished"]):
        manifest = step.require().manifest
        spent, cost = manifest["seconds"] / 3600, manifest["cost"].get("money", 0.0)
        used = spent * execution.watts / 1000 * (execution.nodes if step.module.startswith("training.") else 1)
        rows.append((step.name, f"`{step.fingerprint}`", f"{spent:.3f}", f"{used:.4f}", f"{cost:,.2f}"))
        hours, energy, money = hours + spent, energy + used, money + cost
    rows.append(("all", "", f"{hours:.3f}", f"{energy:.4f}", f"{money:,.2f}"))
    yield table(*rows, header=("stage", "fingerprint", "hours", "kWh", "cost"))


def sign(file: Path, key: Path) -> None:
    """Write FILE.sig with an SSH key; `ssh-keygen -Y verify -n file` checks it.

    Raises:
        ReleaseError: there is no ssh-keygen, or it does not sign with this key.
    """
    signature = file.with_name(f"{file.name}.sig")
    signature.unlink(missing_ok=True)  # it would ask whether to overwrite it
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(file)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            start_new_session=True,  # without a terminal it cannot stop to ask for a passphrase
            env=os.environ | {"SSH_ASKPASS_REQUIRE": "never"},
        )
    except FileNotFoundError:
        raise ReleaseError(
            "execution.signing_key is given and there is no ssh-keygen: install OpenSSH's client, or leave the key out"
        ) from None
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"ssh-keygen did not sign with {key} within {PATIENCE} s: is its agent there?") from None
    if done.returncode or not signature.is_file():
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ReleaseError(
            f"execution.signing_key = {key} does not sign ({said}): give an SSH private key without a passphrase, or "
            "the .pub of one that an agent holds"
        )


def check_key(key: str) -> None:
    """Sign something: a key that does not work is said before anything is made. Raises what `sign` does."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nothing"
        file.write_bytes(b"")
        sign(file, Path(key))
