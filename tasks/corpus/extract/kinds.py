"""Which reader a file's name asks for."""

from __future__ import annotations

import re
from collections.abc import Callable

from tasks.corpus.extract import dictionary, html, man, plain, python, rst, tex
from tasks.corpus.extract.passage import Passage
from tasks.corpus.wordlist import words

EXTRACT: dict[str, Callable[[str], list[Passage]]] = {
    "html": html.extract,
    "rst": rst.extract,
    "markdown": plain.markdown,
    "plain": plain.plain,
    "tex": tex.extract,
    "man": man.extract,
    "dictionary": dictionary.extract,
    "code": python.program,
    "docstrings": python.docstrings,
}
RECORDS = {"jsonl", "parquet", "warc"}
"""Files that hold many documents."""
PROGRAMS = words(
    "ada adb ads asm awk bash bat bzl c cc cl clj cljs cmake coffee cpp cr cs csh cu cuh cxx d dart el elm erl ex exs "
    "f f03 f08 f77 f90 f95 fish for fs fsi fsx glsl go gradle groovy h hh hlsl hpp hrl hs hxx idr ino java jl js jsx "
    "kt kts l lean lhs lisp lua m mjs ml mli mm nim nix nu pas php pl pm proto ps1 py pyi pyx r rb re rkt rs s sas "
    "scala scm sh sol sql sv svelte swift tcl tf thy ts tsx v vb vhd vhdl vim vue wat y zig zsh"
)
_SUFFIXES = {
    "html": "html", "htm": "html", "xhtml": "html", "rst": "rst", "md": "markdown", "markdown": "markdown",
    "txt": "plain", "text": "plain", "tex": "tex", "ltx": "tex", "dict": "dictionary",
    "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet", "warc": "warc", "wet": "warc",
    **{str(section): "man" for section in range(1, 10)},
    **dict.fromkeys(sorted(PROGRAMS), "code"),
}  # fmt: skip
_NAMES = dict.fromkeys(
    sorted(words("makefile gnumakefile dockerfile containerfile rakefile gemfile vagrantfile jenkinsfile justfile "
                 "build.bazel workspace cmakelists.txt meson.build sconstruct")), "code"
)  # fmt: skip
# Folders of other people's code within a source tree, and what tools write there.
VENDORED = words(
    "node_modules bower_components vendor vendors vendored third_party third-party thirdparty 3rdparty external_libs "
    "site-packages dist-packages __pycache__ .venv venv .tox .eggs .git .hg .svn .idea .gradle Pods Carthage"
)


def kind(path: str, reading: str) -> str | None:
    """The reader of the file called `path` (without its compression suffix): what `reading` says, or by its name where
    that is `auto`; None where there is none. A name without a suffix is plain text."""
    name = path.rpartition("/")[2].lower()
    suffix = name.rpartition(".")[2] if "." in name else ""
    found = _NAMES.get(name) or (_SUFFIXES.get(suffix) if suffix else "plain")
    # Records stay records, whatever their text is.
    return found if reading == "auto" or found in RECORDS else reading


# Where a Debian package puts its own modules.
_INSTALLED = re.compile(r"usr/lib/python3(?:\.[0-9]+)?/(?:dist|site)-packages/")


def vendored(path: str) -> bool:
    """Whether a program lies in a folder of other people's code."""
    return not VENDORED.isdisjoint(_INSTALLED.sub("", path, count=1).split("/")[:-1])
