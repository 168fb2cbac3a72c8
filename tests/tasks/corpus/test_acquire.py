"""Sources: packed once, the same bytes every time, a fallback where one cannot be had, one sentence where none can."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from tasks.artifact import Artifact, Step
from tasks.corpus.acquire import AcquireError, acquire, resolve
from tasks.corpus.debian import LicenceError, fetch
from tasks.corpus.sources import DebianSource, SourcesConfig
from tests.raw import PACK, SHARED, ar, folder, step, tar


def debian(**more) -> dict:
    return {
        "name": "deb", "kind": "debian", "package": "no-such-package-here", "evidence": "License: CC0", **SHARED, **more
    }  # fmt: skip


def raw(artifact: Artifact) -> dict[str, bytes]:
    found = {}
    for path in artifact.files("raw"):
        with zipfile.ZipFile(path) as shard:
            found.update({info.filename: shard.read(info) for info in shard.infolist()})
    return found


def listing(artifact: Artifact, name: str) -> list[dict]:
    return [json.loads(line) for line in artifact.file(f"listing/{name}").read_text().splitlines()]


def put_deb(cache: Path, copyright_text: str, package: str = "no-such-package-here") -> None:
    data = tar(
        {
            f"./usr/share/doc/{package}/copyright": copyright_text.encode(),
            "./usr/share/doc/a.html": b"<p>one</p>",
            "./usr/share/doc/b.png": b"\x89PNG",
        }
    )
    deb = ar({"debian-binary": b"2.0\n", "data.tar.xz": PACK[".xz"](data)})
    (cache / "debian").mkdir(parents=True, exist_ok=True)
    (cache / "debian" / f"{package}_1%3a2.0-1_all.deb").write_bytes(deb)


def test_a_package_in_the_cache_serves_without_apt(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    put_deb(tmp_path, "Files: *\nLicense:\n  CC0 and so on")
    artifact = acquire(step(tmp_path / "data", debian(include=["*.html"])), tmp_path, offline=True)
    assert raw(artifact) == {"usr/share/doc/a.html": b"<p>one</p>"}
    assert artifact.statistics["origins"] == {"deb": "Debian package no-such-package-here 1:2.0-1"}


def test_links_in_a_package_are_passed_over_and_not_counted_as_unreadable(tmp_path):
    name = "no-such-package-here"
    data = tar({f"./usr/share/doc/{name}/copyright": b"License: CC0"}, link=True)
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / f"{name}_1_all.deb").write_bytes(ar({"debian-binary": b"2.0\n", "data.tar": data}))
    wheel = tmp_path / "wheels" / "linked-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("linked.py", "x = 1\n")
        link = zipfile.ZipInfo("link.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "linked.py")
    wheels = {"name": "wheel", "kind": "wheel", "requirement": "linked==1.0", **SHARED}
    artifact = acquire(step(tmp_path / "data", debian(), wheels), tmp_path, offline=True)
    assert (artifact.statistics["unreadable"], artifact.statistics["passed_over"]) == (0, 2)
    rows = [json.loads(line) for part in ("deb", "wheel") for line in artifact.file(f"listing/{part}").open()]
    assert [row["kind"] for row in rows if "unreadable" in row] == ["link", "link"]


def test_a_licence_other_than_declared_is_refused(tmp_path):
    put_deb(tmp_path, "License: proprietary")
    with pytest.raises(LicenceError, match=r"source 'deb'.*does not say 'License: CC0'"):
        acquire(step(tmp_path / "data", debian()), tmp_path, offline=True)


def test_two_runs_that_need_one_package_fetch_it_once_and_both_have_it(tmp_path, monkeypatch):
    """Their roots differ, so no lock of a root keeps them apart; the cache is the same."""
    source, calls, second = DebianSource(**debian()), [], threading.Event()

    def apt(command, cwd, **options):
        calls.append(command)
        if len(calls) == 1:
            later.append(pool.submit(fetch, source, tmp_path))
            second.wait(1.0)  # it comes to fetching only where nothing keeps it out
        else:
            second.set()
        (cwd / "no-such-package-here_1_all.deb").write_text("package")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("subprocess.run", apt)
    later: list[Future[Path]] = []
    with ThreadPoolExecutor(1) as pool:
        first = fetch(source, tmp_path)
    assert first.read_text() == "package"
    assert later[0].result() == first
    assert len(calls) == 1


def test_a_fallback_serves_where_a_source_cannot_be_had_and_the_log_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "a.txt").write_text("text")
    chain = (folder(tmp_path / "missing", "second", fallback=["third"]), folder(tmp_path / "a.txt", "third"))
    artifact = acquire(step(tmp_path / "data", debian(fallback=["second"]), fallbacks=chain), tmp_path / "cache")
    assert raw(artifact) == {"a.txt": b"text"}
    assert artifact.statistics["fallbacks"] == {"third": "deb"}
    assert "no apt-get; second serves instead" in caplog.text
    (record,) = json.loads(artifact.file("sources").read_text())
    assert record["source"]["name"] == "third"
    assert record["instead_of"] == "deb"


def test_a_missing_source_without_fallback_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AcquireError, match=r"source 'deb' cannot be had: .*no apt-get; .*`fallback`") as error:
        acquire(step(tmp_path / "data", debian()), tmp_path)
    assert "\n" not in str(error.value)
    with pytest.raises(AcquireError, match="source 'own' cannot be had: there is no file or folder"):
        acquire(step(tmp_path / "data", folder(tmp_path / "nothing")), tmp_path)


def test_patterns_that_take_nothing_are_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(AcquireError, match=r"source 'own' .* no file that `include`"):
        acquire(step(tmp_path / "data", folder(tmp_path, include=["*.html"])), tmp_path)


def test_links_in_a_loop_pipes_and_wrong_archives_are_named_and_the_rest_is_read(tmp_path):
    root = tmp_path / "in"
    (root / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "deep" / "b.txt").write_text("b")
    (root / "deep" / "up").symlink_to(root)
    (root / "nowhere").symlink_to(root / "gone")
    (root / "self").symlink_to(root / "self")
    (root / "c.tar.gz").write_bytes(b"\x1f\x8b broken")
    (root / "large.txt").write_bytes(b"x" * 1000)
    os.mkfifo(root / "pipe")
    artifact = acquire(step(tmp_path / "data", folder(root), record_bytes_max=500), tmp_path)
    assert raw(artifact) == {"a.txt": b"a", "deep/b.txt": b"b"}
    reasons = {row["path"]: row["unreadable"] for row in listing(artifact, "own") if "unreadable" in row}
    assert set(reasons) == {"deep/up", "nowhere", "self", "c.tar.gz", "large.txt", "pipe"}
    assert "a symbolic link to a folder that is read at its own place" in reasons["deep/up"]
    assert (artifact.statistics["unreadable"], artifact.statistics["passed_over"]) == (4, 2)


def test_a_remote_folder_is_read_through_fsspec(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/own-text/x/a.txt", b"one")
    memory.pipe("/own-text/b.md", b"two")
    artifact = acquire(step(tmp_path / "data", folder("memory://own-text")), tmp_path)
    assert raw(artifact) == {"b.md": b"two", "x/a.txt": b"one"}


def test_shards_hold_about_what_was_asked_and_their_bytes_are_the_same_every_time(tmp_path):
    root = tmp_path / "in"
    root.mkdir()
    for number in range(20):
        (root / f"{number:02}.txt").write_text(str(number) * 500)
    artifacts = [acquire(step(tmp_path / run, folder(root), shard_bytes=3000), tmp_path) for run in ("one", "two")]
    assert artifacts[0].manifest["content"] == artifacts[1].manifest["content"]
    assert [part.rows for part in artifacts[0].parts("raw")] == [6, 5, 3, 3, 3]
    assert len(raw(artifacts[0])) == 20


def test_a_limit_draws_the_same_files_whatever_the_order_they_come_in(tmp_path):
    from tasks.corpus.acquire import _selected
    from tasks.corpus.archives import File
    from tasks.corpus.sources import FolderSource

    source = FolderSource(**folder("x", bytes_max=1000))
    files = [File(f"{number}.txt", bytes(100 + number)) for number in range(50)]
    drawn = list(_selected(source, files))
    assert drawn == list(_selected(source, files[::-1]))
    assert 800 < sum(len(file.data) for file in drawn) <= 1000


def test_what_a_source_is_said_to_be_changes_what_depends_on_it(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    contents = {
        acquire(step(tmp_path / "data", folder(tmp_path / "a.txt", **more)), tmp_path).manifest["content"]
        for more in ({}, {"domain": "web"}, {"licence": "MIT"}, {"reading": "markdown"})
    }
    assert len(contents) == 4


def test_packing_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    sources = [folder(tmp_path / name, name) for name in ("one", "two")]
    whole = acquire(step(tmp_path / "whole", *sources), tmp_path)
    cut = step(tmp_path / "cut", *sources)
    put, puts = Step.put, []

    def killed(self, key, *arguments, **options):
        if key == "raw/two/000":
            raise KeyboardInterrupt
        return finished(self, key, *arguments, **options)

    def finished(self, key, *arguments, **options):
        part = put(self, key, *arguments, **options)
        puts.append(key)
        return part

    monkeypatch.setattr(Step, "put", killed)
    with pytest.raises(KeyboardInterrupt):
        acquire(cut, tmp_path)
    assert cut.artifact() is None
    monkeypatch.setattr(Step, "put", finished)
    assert acquire(cut, tmp_path).manifest["content"] == whole.manifest["content"]
    assert sorted(puts) == ["listing/one", "listing/two", "raw/one/000", "raw/two/000", "sources"]


def test_installed_modules_serve_without_a_network(tmp_path):
    module = {"name": "json", "kind": "python", "module": "json", **SHARED}
    artifact = acquire(step(tmp_path / "data", module), tmp_path, offline=True)
    assert "decoder.py" in raw(artifact)
    with pytest.raises(AcquireError, match="Python module 'no_such_module' is not installed"):
        resolve(SourcesConfig(sources=[{**module, "module": "no_such_module"}]), tmp_path, offline=True)


@pytest.mark.parametrize(
    ("sources", "fallbacks", "message"),
    [
        ([folder("a"), folder("b")], [], "two sources are called 'own'"),
        ([folder("a", fallback=["x"])], [], "falls back to 'x', which"),
        ([folder("a", kind="ftp")], [], "kind"),
        ([folder("a", licence="")], [], "licence"),
        ([folder("a", name="dedup")], [], "another name"),
        ([], [], "sources"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(sources, fallbacks, message):
    with pytest.raises(ValidationError, match=message):
        SourcesConfig(sources=sources, fallbacks=fallbacks)
