"""Which files are data, packed or generated: by their name, or by their content where there is no name."""

from __future__ import annotations

import re

from tasks.corpus.wordlist import words

_DATA = words("json jsonc json5 geojson webmanifest yaml yml xml svg xsd plist csv tsv lock ipynb y yy")
"""Suffixes of formats that are sampled down. Kimi k1.5 names JSON, YAML and YACC; the others are of their kind."""
_PROGRAMS = words(
    "py pyi pyx c h cc cpp cxx hpp hh hxx cu cuh cs go rs java kt kts scala js mjs cjs jsx ts tsx sh bash zsh sql r jl "
    "lua rb php pl pm swift hs ml mli lisp el clj scm f f90 f95 m css scss less mk mak s asm toml ini cfg conf "
    "properties"
)
"""Suffixes of files whose text is not looked at: of programs, and of settings in lines of their own."""

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


def is_data(path: str, text: str) -> bool:
    """Whether a file is data by its name, or by the shape of its text where `path` has no suffix we know."""
    name = path.rpartition("/")[2]
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    return name in _LOCKS or suffix in _DATA or (suffix not in _PROGRAMS and _shaped(text))


def minified(path: str) -> bool:
    """Whether the name says that a file was packed."""
    return bool(_MINIFIED.search(path))


def generated(path: str) -> bool:
    """Whether the name is one that a generator gives."""
    return bool(_GENERATED.search(path))


def _shaped(text: str) -> bool:
    """Whether a text looks like XML, JSON, CSV or YAML."""
    head = text[:_HEAD_CHARS].lstrip("\ufeff \t\r\n")
    lines = [line for line in head.split("\n", _HEAD_LINES)[:_HEAD_LINES] if line.strip()]
    if head.startswith("<?xml"):
        return True
    end = text[-_HEAD_CHARS:].rstrip()[-1:]
    if (head[:1] == "{" and end == "}") or (head[:1] == "[" and end == "]"):
        return bool(re.match(r"[{\[]\s{0,200}(?:[\"{\[\]}\d\-]|true|false|null)", head))
    if len(lines) < 5:
        return False
    for separator in (",", "\t", ";"):
        counts = {line.count(separator) for line in lines}
        if len(counts) == 1 and counts.pop() >= 2 and not any(line.endswith(separator) for line in lines):
            return True
    return sum(bool(_KEY.match(line)) for line in lines) >= _SHAPE * len(lines) and not _PROGRAM_WORDS.search(head)
