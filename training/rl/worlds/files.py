"""A small drive: files in folders, a trash from which they come back, and a quota."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from training.rl.worlds.world import World, already, conflict, found, function, functions, text

FOLDERS = ("work", "home", "travel", "music", "school", "garden", "archive", "drafts")
STEMS = ("notes", "plan", "invoice", "recipe", "list", "letter", "budget", "packing", "ideas", "summary", "contract")
LINES = (
    "Call the plumber on Friday.",
    "Milk, rice, tomatoes and soap.",
    "The train leaves at noon.",
    "Rent is due on the first.",
    "Water the roses twice a week.",
    "The password hint is a river.",
    "Chapter three needs an ending.",
    "Meet at the north gate.",
    "周五给水管工打电话。",
    "买牛奶和大米。",
    "火车中午出发。",
)
QUOTA = 4000
"""Characters in files and trash together."""

_PATH = text("Path, such as /music/notes.txt", 60, "^/[a-z]{1,20}/[a-z0-9_-]{1,30}\\.[a-z]{2,4}$")
_FOLDER = text("Folder, such as /work", 21, "^/[a-z]{1,20}$")


def _draw(draw: random.Random) -> dict[str, Any]:
    folders = [f"/{name}" for name in draw.sample(FOLDERS, draw.randint(3, 5))]
    lines = draw.sample(LINES, draw.randint(4, 7))
    files: dict[str, str] = {}
    for line in lines:
        files[f"{draw.choice(folders)}/{draw.choice(STEMS)}{draw.randint(1, 99)}.txt"] = line
    gone = draw.choice(sorted(files))
    return {"folders": sorted(folders), "files": files, "trash": {gone: files.pop(gone)}}


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _room(data: Mapping[str, Any], path: str) -> None:
    """Raises RefusalError where no file can come to `path`."""
    if folder_of(path) not in data["folders"]:
        raise conflict(f"there is no folder {folder_of(path)}")
    if path in data["files"]:
        raise conflict(f"{path} exists")


def _fits(data: Mapping[str, Any], more: int) -> None:
    if _size(data) + more > QUOTA:
        raise conflict("the drive is full")


def _size(data: Mapping[str, Any]) -> int:
    return sum(len(content) for kept in (data["files"], data["trash"]) for content in kept.values())


@function(("list", "list_folder", "ls"), "Files of a folder", {"folder": _FOLDER})
def _list(data: dict[str, Any], folder: str) -> dict[str, Any]:
    if folder not in data["folders"]:
        raise conflict(f"there is no folder {folder}")
    return {"folder": folder, "files": sorted(path for path in data["files"] if folder_of(path) == folder)}


@function(("read", "read_file", "open"), "What a file says", {"path": _PATH})
def _read(data: dict[str, Any], path: str) -> dict[str, Any]:
    return {"path": path, "content": found(data["files"], path, "file")}


@function(("search", "grep", "find_text"), "Files whose text holds a phrase", {"phrase": text("What to look for")})
def _search(data: dict[str, Any], phrase: str) -> dict[str, Any]:
    hits = [path for path, content in data["files"].items() if phrase.lower() in content.lower()]
    return {"phrase": phrase, "files": sorted(hits)}


@function(("trash", "list_trash", "show_trash"), "Deleted files", {})
def _trash(data: dict[str, Any]) -> dict[str, Any]:
    return {"trash": sorted(data["trash"])}


@function(
    ("write", "save", "write_file"),
    "Write a file; an old one of that name is overwritten",
    {"path": _PATH, "content": text("The whole text", 400)},
    writes=True,
)
def _write(data: dict[str, Any], path: str, content: str) -> dict[str, Any]:
    if folder_of(path) not in data["folders"]:
        raise conflict(f"there is no folder {folder_of(path)}")
    _fits(data, len(content) - len(data["files"].get(path, "")))
    data["files"][path] = content
    return {"path": path, "characters": len(content)}


@function(("move", "rename", "mv"), "Move a file to another path", {"path": _PATH, "target": _PATH}, writes=True)
def _move(data: dict[str, Any], path: str, target: str) -> dict[str, Any]:
    found(data["files"], path, "file")
    _room(data, target)
    data["files"][target] = data["files"].pop(path)
    return {"path": target}


@function(("copy", "duplicate", "cp"), "Copy a file to another path", {"path": _PATH, "target": _PATH}, writes=True)
def _copy(data: dict[str, Any], path: str, target: str) -> dict[str, Any]:
    content = found(data["files"], path, "file")
    if data["files"].get(target) == content:
        raise already(f"{target} is a copy of {path}")
    _room(data, target)
    _fits(data, len(content))
    data["files"][target] = content
    return {"path": target}


@function(("delete", "remove_file", "rm"), "Put a file in the trash", {"path": _PATH}, writes=True)
def _delete(data: dict[str, Any], path: str) -> dict[str, Any]:
    found(data["files"], path, "file")
    data["trash"][path] = data["files"].pop(path)
    return {"trash": path}


@function(("restore", "undelete", "recover"), "Bring a file back from the trash", {"path": _PATH}, writes=True)
def _restore(data: dict[str, Any], path: str) -> dict[str, Any]:
    found(data["trash"], path, "file in the trash called")
    _room(data, path)
    data["files"][path] = data["trash"].pop(path)
    return {"path": path}


FILES = World(
    "files",
    ("files", "drive", "docs"),
    functions(_list, _read, _search, _trash, _write, _move, _copy, _delete, _restore),
    _draw,
    {
        "every file lies in a folder": lambda data: {folder_of(path) for path in data["files"]} <= {*data["folders"]},
        "the quota holds": lambda data: _size(data) <= QUOTA,
    },
)
