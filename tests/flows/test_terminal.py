"""The outlet: whatever is printed, nothing of it is obeyed, neither by rich nor by a terminal."""

from __future__ import annotations

import io
import logging

import pytest
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from flows import cli
from flows.stages import STAGES
from flows.terminal import Terminal, shown
from tasks.logs import plain_logs
from tasks.progress import Progress

HOSTILE = "[/bold] :-1: [a-z]+ [link=javascript:alert(1)]x[/link] "
HOSTILE += "\x1b[31m \x1b]8;;http://evil\x1b\\y \x9b2J \x07 \u202egpj \r\x08"
OBEYED = ("\x1b", "\x9b", "\x07", "\u202e", "\r", "\x08", "👎")


def printed(*blocks, width: int = 200) -> str:
    console = Terminal()
    console.file, console.width = io.StringIO(), width
    for block in blocks:
        console.print(block)
    return console.file.getvalue()


def table(text: str) -> Table:
    made = Table(text, title=text, caption=text)
    made.add_row(text)
    return made


@pytest.mark.parametrize(
    "block",
    [HOSTILE, Text(HOSTILE), Text.assemble((HOSTILE, "bold")), table(HOSTILE), Tree(HOSTILE).add(Text(HOSTILE))],
    ids=["string", "text", "styled", "table", "tree"],
)
def test_nothing_is_obeyed_and_nothing_is_lost(block):
    told = printed(block)
    assert not [character for character in OBEYED if character in told]
    for shown_ in ("[/bold]", ":-1:", "[a-z]+", "[link=javascript:alert(1)]", "␛[31m", "⟨U+009B⟩2J", "⟨U+202E⟩gpj"):
        assert shown_ in told


def test_newlines_stay():
    assert printed(Text.assemble("one\n", ("two\x1b[2J", "bold"))) == "one\ntwo␛[2J\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_its_notes_as_they_are(terminal):
    console = Terminal()
    console.file, console.width, console._force_terminal = io.StringIO(), 300, terminal
    with shown(console), Progress(f"[red]label \x9b{HOSTILE}", 2, "files") as progress:
        progress.advance(2, note=f"[/bold] {HOSTILE}")
    told = console.file.getvalue()
    assert "[red]label" in told
    assert not [hidden for hidden in ("\x9b", "\x07", "\u202e", "\x1b]8") if hidden in told]


def test_log_lines_are_plain(capsys):
    before = logging.getLogRecordFactory()
    log = logging.getLogger("tests.hostile")
    handler = logging.StreamHandler(stream := io.StringIO())
    log.addHandler(handler)
    try:
        plain_logs()
        log.warning("could not read %s", "a\x1b[31m\u202eb s3://me:geheim@bucket")
        try:
            raise ValueError("\x1b]0;title\x07 https://h?token=geheim")
        except ValueError as error:
            log.warning("failed", exc_info=error)
    finally:
        logging.setLogRecordFactory(before)
        log.removeHandler(handler)
    told = stream.getvalue()
    assert "a␛[31m⟨U+202E⟩b" in told
    assert "ValueError" in told
    assert not [hidden for hidden in ("geheim", "\x1b", "\x07") if hidden in told]


@pytest.mark.parametrize("value", ["[/bold]", "[a-z]+", ":-1:", "\x9b2J\u202e", "[red]x[/red]"])
def test_an_error_shows_a_value_as_it_is(value, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["openk2", "plan", "stages", "--set", f"pretrain.seed='{value}'"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    told = capsys.readouterr().err
    assert "pretrain.seed" in told
    if value.isprintable():
        assert value in told
    assert not [hidden for hidden in ("\x9b", "\u202e") if hidden in told]


def test_the_stages_that_are_named_are_those_that_run():
    assert set(cli.STAGES) == set(STAGES)


def test_an_unknown_stage_is_told_before_a_server_starts(tmp_path, monkeypatch, capsys):
    def started(*_: object):
        raise AssertionError("a server was started")

    monkeypatch.setattr("flows.server.api", started)
    monkeypatch.setattr("sys.argv", ["openk2", "run", "tokns", "--root", str(tmp_path / "data")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "there is no stage 'tokns': did you mean 'tokens'?" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "data").exists()
