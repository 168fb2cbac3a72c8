"""Where control groups are made, on trees of plain folders laid out as the kernel does; the limits themselves are
tested by the attacks, in the groups of this machine."""

from __future__ import annotations

from pathlib import Path

from training.rl.sandbox.cgroups import groups


def lay_out(root: Path, *folders: str, enabled: str = "") -> None:
    for folder in folders:
        (root / folder).mkdir(parents=True)
        (root / folder / "cgroup.subtree_control").write_text(enabled)


def test_version_2_is_beside_the_own_group(tmp_path: Path) -> None:
    """systemd enables controllers in the user's slice, not in the group that the process is in."""
    lay_out(tmp_path, "user.slice/app.slice", enabled="cpu memory pids")
    lay_out(tmp_path, "user.slice/app.slice/shell.scope")
    (made,) = groups(tmp_path, "0::/user.slice/app.slice/shell.scope\n")
    assert made.folder.parent == tmp_path / "user.slice" / "app.slice"
    assert [(one.version, one.name) for one in made.controllers] == [(2, "memory"), (2, "pids")]


def test_version_1_and_a_version_2_without_controllers(tmp_path: Path) -> None:
    lay_out(tmp_path, "unified", "memory/job", "pids")
    memory, pids = groups(tmp_path, "4:memory:/job\n8:pids:/\n0::/\n")
    assert (memory.folder.parent, pids.folder.parent) == (tmp_path / "memory" / "job", tmp_path / "pids")
    assert [one.version for group in (memory, pids) for one in group.controllers] == [1, 1]


def test_neither(tmp_path: Path) -> None:
    assert groups(tmp_path, "0::/\n") == []
    lay_out(tmp_path, "a", enabled="cpu")
    assert groups(tmp_path, "0::/a\n") == []


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    lay_out(tmp_path, "pids")
    left = tmp_path / "pids" / "openk2-sandbox-999999999-0"
    left.mkdir()
    (made,) = groups(tmp_path, "8:pids:/\n")
    assert not left.exists()
    assert made.folder.exists()
