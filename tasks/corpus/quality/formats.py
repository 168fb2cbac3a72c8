"""What kind of file a program or data file is: by its name, or by its content where there is no name."""

from __future__ import annotations

import re

from tasks.corpus.wordlist import words

LANGUAGES: dict[str, str] = {
    suffix: language
    for language, suffixes in {
        "python": "py pyi pyx", "c": "c h", "c++": "cc cpp cxx hpp hh hxx", "cuda": "cu cuh", "c#": "cs", "go": "go",
        "rust": "rs", "java": "java", "kotlin": "kt kts", "scala": "scala", "javascript": "js mjs cjs jsx",
        "typescript": "ts tsx", "shell": "sh bash zsh", "sql": "sql", "r": "r", "julia": "jl", "lua": "lua",
        "ruby": "rb", "php": "php", "perl": "pl pm", "swift": "swift", "haskell": "hs", "ocaml": "ml mli",
        "lisp": "lisp el clj scm", "fortran": "f f90 f95", "matlab": "m", "css": "css scss less", "make": "mk mak",
        "assembly": "s asm", "json": "json jsonc json5 geojson webmanifest", "yaml": "yaml yml",
        "xml": "xml svg xsd plist", "csv": "csv tsv",
        "lock": "lock", "notebook": "ipynb", "toml": "toml", "ini": "ini cfg conf properties",
        "yacc": "y yy",
    }.items()
    for suffix in suffixes.split()
}  # fmt: skip
"""The language of a program by the suffix of its file."""
DATA = words("json yaml xml csv lock notebook yacc")
"""Formats that are sampled down. Kimi k1.5 names JSON, YAML and YACC; the others are of their kind."""

_LOCKS = words("package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml go.sum composer.lock Cargo.lock")
_MINIFIED = re.compile(r"[.\-](?:min|bundle|pack)\.(?:js|mjs|cjs|css)$", re.IGNORECASE)
_GENERATED = re.compile(
    r"(?:_pb2(?:_grpc)?\.pyi?|\.pb\.(?:go|cc|h)|\.g\.(?:dart|cs)|\.designer\.cs|\.generated\.\w+|(?:^|/)parsetab\.py)$",
    re.IGNORECASE,
)
# How much of a text without a name is looked at, and how many of its lines must have a format's shape. Ours.
_HEAD_LINES, _HEAD_CHARS, _SHAPE = 50, 20_000, 0.9
_KEY = re.compile(r"^[ \t]{0,80}(?:- )?[\"']?[\w.\-/ ]{1,80}[\"']?:(?:\s|$)|^[ \t]{0,80}- |^---")
_PROGRAM_WORDS = re.compile(r"\b(?:def|return|import|class|if|for|else|function|void|int|include)\b")


def file_language(path: str, text: str) -> str:
    """The language that `path` names, or that the text looks like where `path` has no suffix we know; '' if neither."""
    name = path.rpartition("/")[2]
    if name in _LOCKS:
        return "lock"
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    return LANGUAGES.get(suffix) or _shape(text)


def minified(path: str) -> bool:
    """Whether the name says that a file was packed."""
    return bool(_MINIFIED.search(path))


def generated(path: str) -> bool:
    """Whether the name is one that a generator gives."""
    return bool(_GENERATED.search(path))


def _shape(text: str) -> str:
    head = text[:_HEAD_CHARS].lstrip("\ufeff \t\r\n")
    lines = [line for line in head.split("\n", _HEAD_LINES)[:_HEAD_LINES] if line.strip()]
    if head.startswith("<?xml"):
        return "xml"
    end = text[-_HEAD_CHARS:].rstrip()[-1:]
    if (head[:1] == "{" and end == "}") or (head[:1] == "[" and end == "]"):
        return "json" if re.match(r"[{\[]\s{0,200}(?:[\"{\[\]}\d\-]|true|false|null)", head) else ""
    if len(lines) < 5:
        return ""
    for separator in (",", "\t", ";"):
        counts = {line.count(separator) for line in lines}
        if len(counts) == 1 and counts.pop() >= 2 and not any(line.endswith(separator) for line in lines):
            return "csv"
    if sum(bool(_KEY.match(line)) for line in lines) >= _SHAPE * len(lines) and not _PROGRAM_WORDS.search(head):
        return "yaml"
    return ""
