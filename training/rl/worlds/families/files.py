"""What people ask for with a drive."""

from __future__ import annotations

import random
from typing import Any

from training.rl.worlds import files
from training.rl.worlds.families.family import Data, Family, last, pair


def _draw_file(data: Data, draw: random.Random) -> dict[str, Any] | None:
    return {"path": draw.choice(sorted(data["files"]))} if data["files"] else None


def _fresh_path(data: Data, draw: random.Random) -> str:
    return f"{draw.choice(data['folders'])}/{draw.choice(files.STEMS)}{draw.randint(100, 999)}.txt"


def _draw_copy(data: Data, draw: random.Random) -> dict[str, Any] | None:
    drawn = _draw_file(data, draw)
    return drawn and drawn | {"target": _fresh_path(data, draw)}


def _draw_phrase(data: Data, draw: random.Random) -> dict[str, Any] | None:
    texts = data["files"].values()
    phrases = sorted({text.rstrip(".。") for text in texts})
    alone = [phrase for phrase in phrases if sum(phrase in text for text in texts) == 1]
    return {"phrase": draw.choice(alone)} if alone else None


def _holder(data: Data, phrase: str) -> str:
    return next(path for path, content in data["files"].items() if phrase in content)


FILES = (
    Family(
        "files.read",
        "files",
        _draw_file,
        lambda data, a: [("read", a)],
        ("(read|open) {path} (to me|and tell me what it says)", "(tell|show) me (the text of|what is in) {path}"),
        ("(打开|读一下){path}，告诉我内容", "看看{path}里(写了什么|有什么)"),
        pair("It says: {content}", "内容是：{content}"),
        last("content"),
    ),
    Family(
        "files.write",
        "files",
        lambda data, draw: {"path": _fresh_path(data, draw), "content": draw.choice(files.LINES).rstrip(".。")},
        lambda data, a: [("write", a)],
        ("(make|create|write) a file {path} that says: {content}", "(save|keep) the text “{content}” as {path}"),
        ("(新建|写一个)文件{path}，内容是：{content}", "把“{content}”(保存|存)到{path}"),
        pair("{path} is written.", "已写入{path}。"),
        withheld={"content": pair("(make|create) a file {path}", "(新建|创建)文件{path}")},
    ),
    Family(
        "files.move",
        "files",
        _draw_copy,
        lambda data, a: [("move", a)],
        ("(move|rename) {path} to {target}", "let {path} be called {target} (from now on|)"),
        ("把{path}(移到|改名为){target}", "将文件{path}(移动|重命名)为{target}"),
        pair("It is {target} now.", "现在是{target}。"),
        withheld={"target": pair("(move|rename) {path}", "(移动|重命名)一下{path}")},
    ),
    Family(
        "files.copy",
        "files",
        _draw_copy,
        lambda data, a: [("copy", a)],
        ("(copy|duplicate) {path} to {target}", "(keep|make) a copy of {path} (as|under) {target}"),
        ("把{path}复制(到|为){target}", "给{path}做一个副本，(叫|存为){target}"),
        pair("The copy is {target}.", "副本是{target}。"),
    ),
    Family(
        "files.delete_by_text",
        "files",
        _draw_phrase,
        lambda data, a: [("search", a), ("delete", {"path": _holder(data, a["phrase"])})],
        (
            "(delete|throw away) the file that says “{phrase}”",
            "find the (file|note) with “{phrase}” and (delete it|put it in the trash)",
        ),
        ("(删掉|删除)写着“{phrase}”的文件", "找到含有“{phrase}”的文件并(删除|扔进回收站)"),
        pair("{trash} is in the trash.", "{trash}已放入回收站。"),
        last("trash"),
    ),
    Family(
        "files.restore",
        "files",
        lambda data, draw: (
            {"path": draw.choice(kept)}
            if (kept := sorted(path for path in data["trash"] if path not in data["files"]))
            else None
        ),
        lambda data, a: [("restore", a), ("read", a)],
        (
            "(restore|bring back) {path} and (read it to me|tell me what it says)",
            "get {path} out of the trash and (open it|show me the text)",
        ),
        ("(恢复|还原){path}，再告诉我内容", "把{path}从回收站拿回来，(读|念)给我听"),
        pair("{path} is back. It says: {content}", "{path}已恢复，内容是：{content}"),
        last("content"),
    ),
)
