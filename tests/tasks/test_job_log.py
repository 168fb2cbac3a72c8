"""A job's log in its stage's: whole lines, at their levels, and no flood."""

from __future__ import annotations

import logging

from tasks.job_log import MOST, JobLog


def test_whole_lines_are_told_once_at_their_levels(tmp_path, caplog):
    file = tmp_path / "log.txt"
    file.write_text("of an earlier attempt\n")
    said = JobLog(file)
    with caplog.at_level(logging.INFO, logger="tasks.job_log"), file.open("a") as job:
        print("2026-11-22 13:38:13,069 WARNING the pass rate is 0.00", file=job, flush=True)
        job.write("half a ")
        job.flush()
        said.relay()
        said.relay()
        print("line with 100 % and {braces}", file=job, flush=True)
        said.relay()
        job.write("RuntimeError: the last words")
        job.flush()
        said.relay(ended=True)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the pass rate is 0.00"),
        ("INFO", "half a line with 100 % and {braces}"),
        ("INFO", "RuntimeError: the last words"),
    ]


def test_a_flood_stays_in_the_file_and_is_counted(tmp_path, caplog):
    file = tmp_path / "log.txt"
    said = JobLog(file)
    with caplog.at_level(logging.INFO, logger="tasks.job_log"):
        said.relay()  # the file does not exist yet
        file.write_bytes(b"again\n" * (MOST + 23) + b"\xff not UTF-8\n")
        said.relay()
        said.relay(ended=True)
    assert [record.getMessage() for record in caplog.records] == ["again"] * MOST + [f"24 more lines stand in {file}"]
