"""`openk2 tokens export` and `import`: which artifact, which tokenizer, and who does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.preset import load_preset
from flows.request import Request
from flows.steps import graph
from flows.terminal import shown
from tasks.artifact import Artifact, Step
from tasks.tokens.exporting import Record, blend, export
from tasks.tokens.importing import ImportConfig, adopt_tokenizer, build, examine, pairs_in


@dataclass(frozen=True)
class Given:
    """What an export wrote."""

    pairs: dict[Path, Record]
    """By prefix."""
    blend: list[str]
    """Megatron's `--data-path`."""


def give(request: Request, folder: str, uri: str, split: str, domain: str, source: str, console: Console) -> Given:
    """Export the preset's tokens (or those at `uri`). Raises NotReady, ShardError or MegatronError in one sentence."""
    tokens = Artifact.load(uri.rstrip("/")) if uri else graph(request)["tokens"].require()
    with shown(console):
        pairs = export(tokens, folder, split, domain, source)
    return Given(pairs, blend(pairs))


def take(
    request: Request,
    paths: Sequence[str],
    tokenizer_file: str,
    domain: str,
    source: str,
    licence: str,
    end: int | None,
    console: Console,
) -> Artifact:
    """Import pairs under the root; the artifact that exists already where the same were imported before. Raises
    NotReady, TokenizerError or MegatronError in one sentence."""
    preset = load_preset(request)
    step = (
        adopt_tokenizer(Path(tokenizer_file), request.root) if tokenizer_file else graph(request, preset)["tokenizer"]
    )
    tokenizer = step.require()
    prefixes = pairs_in(paths)
    with shown(console):
        pairs = tuple(examine(prefix, tokenizer, domain, source, licence) for prefix in prefixes)
        config = ImportConfig(pairs=pairs, end=end, tokens=preset.tokens)
        made = Step.of("tokens", "tasks.tokens.importing", config, request.root, (step,))
        return made.artifact() or build(made.begin(), prefixes, tokenizer)
