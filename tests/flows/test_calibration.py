"""`openk2 calibrate-alignment`: what is left out is named, and is no broken promise."""

from __future__ import annotations

import pytest

from flows import cli
from tasks.rephrase.alignment.stack import NETWORK_CHECKS


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["openk2", "calibrate-alignment", "--corpus", "0", "--workers", "1", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr()
    return int(end.value.code or 0), " ".join((told.out + told.err).split())


def test_checks_that_are_left_out_are_named_and_break_no_promise(monkeypatch, capsys):
    code, told = called(monkeypatch, capsys, "--cheap", "--sample", "60")
    assert code == 0
    assert "Not kept" not in told
    assert "Every promise is kept" not in told
    assert f"Left out: {', '.join(check.__name__ for check in NETWORK_CHECKS)}" in told


def test_promises_are_not_checked_without_the_checks_that_keep_them(monkeypatch, capsys):
    code, told = called(monkeypatch, capsys, "--cheap", "--check", "--sample", "2")
    assert code == 1
    assert "--check holds the whole stack to its promises and --cheap leaves checks out" in told
