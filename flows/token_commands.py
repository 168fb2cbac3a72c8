"""`openk2 tokens`: the plan of a run's tokens, and shards to and from other people's format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.options import FileOption, MfuOption, PeakOption, PresetOption, RootOption, SetOption, request_of
from flows.request import PresetName
from flows.tables import styled
from flows.terminal import Terminal, shown

tokens = typer.Typer(
    name="tokens",
    help="Plan the tokens of a run; export shards to Megatron-LM's indexed datasets, and import such.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
out = Terminal()


@tokens.command()
def plan(
    preset: PresetOption = PresetName.k2,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="Accelerators; else the preset's nodes x processes.")
    ] = None,
    pipeline: Annotated[
        int | None,
        typer.Option("--pipeline", min=1, help="Pipeline ranks; else the preset's. gpus / pipeline ranks read data."),
    ] = None,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=1, help="Accelerators that share a node.")] = 8,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1e-6, help="Seconds of an update; else worked out from the MFU.")
    ] = None,
    mfu: MfuOption = 0.3,
    peak: PeakOption = None,
    horizon: Annotated[
        int | None,
        typer.Option("--horizon", min=1, help="Updates read ahead; else the preset's `run.prefetch_updates`."),
    ] = None,
    document: Annotated[
        int, typer.Option("--document-tokens", min=1, help="Tokens of a document on average, for the indices.")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """What a run asks of its tokens before there are any: sequences and updates by stage, bytes, shards, the size of
    their table and indices, which rank takes how much, and how fast all that is read.

    Counted as if every token of the stages were read once. All is closed form, with rows of the table of shards and of
    a document index as they were measured; nothing of the recipe needs to have run.

    Examples:

    - `openk2 tokens plan`: Kimi K2's own run.

    - `openk2 tokens plan --gpus 768 --pipeline 16`: 96 nodes, 48 data-parallel ranks, which 16,384 sequences do not
      divide by.

    - `openk2 tokens plan --gpus 2048 --pipeline 16 --mfu 0.2`: slower updates, smaller read rates.

    - `openk2 tokens plan --preset laptop --seconds 1.5`: the laptop's, at a measured step time.

    - `openk2 tokens plan --json | jq .stages`: for scripts.
    """
    from flows.token_plan import plan_tokens, render, to_json

    request = request_of(preset, root, preset_file, overrides)
    found = plan_tokens(request, gpus, pipeline, gpus_per_node, seconds, mfu, peak, horizon, document)
    if as_json:
        sys.stdout.write(to_json(found))
        return
    for piece in render(found):
        out.print(piece)


@tokens.command(name="export")
def export_(
    folder: Annotated[str, typer.Argument(help="Where the pairs go: a folder of this machine.")],
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    uri: Annotated[
        str, typer.Option("--uri", help="Another tokens artifact, such as data/tokens/0123456789abcdef.")
    ] = "",
    split: Annotated[str, typer.Option("--split", help="Only `train` or `heldout`.")] = "",
    domain: Annotated[str, typer.Option("--domain", help="Only this domain.")] = "",
    source: Annotated[str, typer.Option("--source", help="Only this source.")] = "",
) -> None:
    """Write token shards as Megatron-LM's indexed datasets (`.bin` and `.idx`), a pair for each split, domain and
    source: `FOLDER/SPLIT/DOMAIN/SOURCE/tokens.*`, the tokenizer beside them.

    A document is one sequence and ends with its end-of-document token. A `.parquet` beside each pair keeps who every
    document is, so that `openk2 tokens import` brings all of it back; Megatron does not read it. Run again, it writes
    only what is missing.

    Examples:

    - `openk2 tokens export megatron`: everything that the laptop preset's tokens stage wrote.

    - `openk2 tokens export megatron --split train --domain code`: part of it.

    It prints what to give to Megatron's `--data-path`: weights (tokens) and prefixes.
    """
    from flows.steps import graph
    from tasks.artifact import Artifact
    from tasks.tokens.exporting import blend, export

    request = request_of(preset, root, preset_file, overrides)
    artifact = Artifact.load(uri.rstrip("/")) if uri else graph(request)["tokens"].require()
    with shown(out):
        found = export(artifact, folder, split, domain, source)
    for prefix, record in found.items():
        out.print(f"{prefix}: {record.documents:,} documents, {record.tokens:,} tokens")
    if words := blend(found):
        out.print(f"--data-path {' '.join(words)}", soft_wrap=True)


@tokens.command(name="import")
def import_(
    pairs: Annotated[
        list[str], typer.Argument(help="Prefixes of pairs (`.bin` and `.idx`), or folders with such in them.")
    ],
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", help="The tokenizer.json that they were made with; else the preset's own.")
    ] = "",
    domain: Annotated[str, typer.Option("--domain", help="Of pairs that openk2 did not export: web, code, ...")] = "",
    source: Annotated[str, typer.Option("--source", help="Of such pairs: where the text is from.")] = "",
    licence: Annotated[str, typer.Option("--licence", help="Of such pairs: the documents' licence (SPDX).")] = "",
    end: Annotated[
        int | None,
        typer.Option("--end", min=0, help="Id that ends documents in them; else the tokenizer's own end of document."),
    ] = None,
) -> None:
    """Make token shards of Megatron-LM's indexed datasets: a tokens artifact with manifest, table and indices under
    the root, which `training.loader.Loader` and every other reader of shards takes.

    What `openk2 tokens export` wrote comes back as it was, split, source and licence included. Of other pairs say
    domain, source and licence; documents get their end-of-document token where they lack it, a hash of their tokens
    for an id, and `tokens.heldout_fraction` of them is held out. An index that does not fit its tokens, and tokens
    that the tokenizer does not have, are refused before anything counts.

    Examples:

    - `openk2 tokens import megatron --tokenizer megatron/tokenizer.json`: an export, back again.

    - `openk2 tokens import their/books_text_document --tokenizer their/tokenizer.json --end 50256 --domain knowledge
      --source books --licence CC0-1.0`: other people's.
    """
    from flows.preset import load_preset
    from flows.steps import graph
    from tasks.artifact import Step
    from tasks.tokens.importing import ImportConfig, adopt_tokenizer, build, examine, pairs_in

    request = request_of(preset, root, preset_file, overrides)
    p = load_preset(request)
    learned = adopt_tokenizer(Path(tokenizer), root) if tokenizer else graph(request, p)["tokenizer"]
    tokens_of, prefixes = learned.require(), pairs_in(pairs)
    with shown(out):
        examined = tuple(examine(prefix, tokens_of, domain, source, licence) for prefix in prefixes)
        config = ImportConfig(pairs=examined, end=end, tokens=p.tokens)
        step = Step.of("tokens", "tasks.tokens.importing", config, root, (learned,))
        found = step.artifact() or build(step.begin(), prefixes, tokens_of)
    statistics = found.statistics
    heldout = sum(counts["documents"] for counts in statistics["heldout"].values())
    told = (
        f"{statistics['documents']:,} documents of {statistics['tokens']:,} tokens to train on, {heldout:,} documents "
        f"held out, {statistics['empty']:,} empty left out: "
    )
    out.print(styled(told, (found.uri, "bold")))
