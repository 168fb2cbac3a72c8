"""Whatever went wrong, a person reads one sentence."""

from __future__ import annotations

import errno

import pytest

from flows import cli
from flows.errors import sentence
from flows.preset import PresetError
from tasks.artifact import NotReady


def chained(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def test_a_message_written_for_people_wins_over_its_wrappers():
    inner = NotReady("'corpus' is not complete: run its stage")
    assert sentence(chained(RuntimeError("Flow run failed"), inner)) == str(inner)
    assert sentence(PresetError("no such field")) == "no such field"


def test_a_full_disk_is_called_so_wherever_it_showed():
    full = OSError(errno.ENOSPC, "No space left on device", "/data/part")
    told = sentence(chained(RuntimeError("Task run failed"), full))
    assert "the disk is full while writing /data/part" in told


def test_a_missing_or_unreadable_file_is_named():
    assert sentence(FileNotFoundError(errno.ENOENT, "No such file or directory", "x.yaml")).startswith(
        "x.yaml: No such"
    )
    assert "secret" in sentence(PermissionError(errno.EACCES, "Permission denied", "/secret"))


@pytest.mark.parametrize("number", [errno.ENOTDIR, errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_root_that_cannot_be_written_says_what_to_do(number):
    told = sentence(OSError(number, "no", "/data/x"))
    assert told.startswith("/data/x: ")
    assert "--root" in told


def test_no_sentence_repeats_a_secret():
    told = sentence(RuntimeError("GET https://me:geheim@host/a?token=geheim timed out"))
    assert "geheim" not in told
    assert "host/a" in told


def test_what_nobody_foresaw_says_its_kind_and_how_to_see_more():
    told = sentence(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError: division by zero" in told
    assert "OPENK2_TRACEBACK" in told


def test_what_was_raised_from_nothing_is_told_without_what_came_before():
    error = ValueError("x is no JSON: write it again")
    error.__context__, error.__suppress_context__ = KeyError("y"), True
    assert sentence(error).startswith("ValueError: x is no JSON: write it again")


def test_a_circle_of_causes_ends():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert "two" in sentence(one)


def test_an_interrupt_says_that_the_same_command_goes_on(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Through typer, which would end in silence."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.stage_plan.plan_stages", interrupted)
    monkeypatch.setattr("sys.argv", ["openk2", "plan", "stages"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert "the same command goes on" in capsys.readouterr().err
