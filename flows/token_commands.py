"""`openk2 tokens`: the plan of a run's tokens, and shards to and from other people's format."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.options import FileOption, MfuOption, PeakOption, PresetOption, RootOption, SetOption, request_of
from flows.request import PresetName
from flows.tables import styled, to_json
from flows.terminal import Terminal, shown

tokens = typer.Typer(
    name="tokens",
    help="Plan the tokens of a run; export token shards to Megatron-LM's indexed datasets, and import them.",
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
        int | None,
        typer.Option("--gpus", min=1, help="Number of accelerators. Default: the preset's nodes x processes."),
    ] = None,
    pipeline: Annotated[
        int | None,
        typer.Option(
            "--pipeline", min=1, help="Pipeline ranks; gpus / pipeline ranks read data. Default: the preset's."
        ),
    ] = None,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=1, help="Accelerators per node.")] = 8,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1e-6, help="Seconds per update. Default: computed from the MFU.")
    ] = None,
    mfu: MfuOption = 0.3,
    peak: PeakOption = None,
    horizon: Annotated[
        int | None,
        typer.Option("--horizon", min=1, help="Updates read ahead. Default: the preset's `run.prefetch_updates`."),
    ] = None,
    document: Annotated[
        int, typer.Option("--document-tokens", min=1, help="Average tokens per document, for the size of indices.")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Plan the tokens of a run: sequences and updates by stage, bytes, shards, the size of their table and indices,
    the share of each rank, and read rates.

    Assumes that every token of the stages is read once. All figures are computed by formula, with measured sizes of
    the rows of a shard table and a document index. Nothing needs to have run.

    Examples:

    - `openk2 tokens plan`: Kimi K2's run.

    - `openk2 tokens plan --gpus 768 --pipeline 16`: 96 nodes; its 48 data-parallel ranks do not divide 16,384
      sequences.

    - `openk2 tokens plan --gpus 2048 --pipeline 16 --mfu 0.2`: slower updates, smaller read rates.

    - `openk2 tokens plan --preset laptop --seconds 1.5`: the laptop's run, with a measured step time.

    - `openk2 tokens plan --json | jq .stages`: for scripts.
    """
    from flows.token_plan import plan_tokens, render

    request = request_of(preset, root, preset_file, overrides)
    found = plan_tokens(request, gpus, pipeline, gpus_per_node, seconds, mfu, peak, horizon, document)
    if as_json:
        sys.stdout.write(to_json(asdict(found)))
        return
    for piece in render(found):
        out.print(piece)


@tokens.command(name="export")
def export_(
    folder: Annotated[str, typer.Argument(help="The local folder to write to.")],
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    uri: Annotated[
        str, typer.Option("--uri", help="Another tokens artifact, such as data/tokens/0123456789abcdef.")
    ] = "",
    split: Annotated[str, typer.Option("--split", help="Only this split: `train` or `heldout`.")] = "",
    domain: Annotated[str, typer.Option("--domain", help="Only this domain.")] = "",
    source: Annotated[str, typer.Option("--source", help="Only this source.")] = "",
) -> None:
    """Export token shards as Megatron-LM's indexed datasets: a pair (`.bin` and `.idx`) for each split, domain and
    source at `FOLDER/SPLIT/DOMAIN/SOURCE/tokens.*`, with the tokenizer.

    Each document is one sequence and ends with its end-of-document token. A `.parquet` beside each pair keeps the
    documents' identities, so that `openk2 tokens import` can restore them; Megatron does not read it. When run again,
    the command writes only what is missing.

    Examples:

    - `openk2 tokens export megatron`: everything that the laptop preset's tokens stage wrote.

    - `openk2 tokens export megatron --split train --domain code`: only the training split of code.

    The command prints the argument for Megatron's `--data-path`: weights (tokens) and prefixes.
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
        list[str], typer.Argument(help="Prefixes of pairs (`.bin` and `.idx`), or folders that contain pairs.")
    ],
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", help="The tokenizer.json that made the tokens. Default: the preset's.")
    ] = "",
    domain: Annotated[
        str, typer.Option("--domain", help="Domain of pairs not exported by openk2: web, code, ...")
    ] = "",
    source: Annotated[str, typer.Option("--source", help="Source of such pairs.")] = "",
    licence: Annotated[str, typer.Option("--licence", help="Licence (SPDX) of such pairs.")] = "",
    end: Annotated[
        int | None,
        typer.Option(
            "--end", min=0, help="Id that ends documents in the pairs. Default: the tokenizer's end-of-document id."
        ),
    ] = None,
) -> None:
    """Import Megatron-LM's indexed datasets as token shards: a tokens artifact with manifest, table and indices under
    the root, which `training.loader.Loader` and all other readers of shards can read.

    Pairs that `openk2 tokens export` wrote are restored, including split, source and licence. For other pairs, give
    domain, source and licence. Their documents get an end-of-document token if they lack one, and a hash of their
    tokens as id; `tokens.heldout_fraction` of them is held out. An index that does not fit its tokens, and token ids
    that the tokenizer does not have, are refused before anything is published.

    Examples:

    - `openk2 tokens import megatron --tokenizer megatron/tokenizer.json`: import an export again.

    - `openk2 tokens import their/books_text_document --tokenizer their/tokenizer.json --end 50256 --domain knowledge
      --source books --licence CC0-1.0`: import other pairs.
    """
    from flows.preset import load_preset
    from flows.steps import graph
    from tasks.artifact import Step
    from tasks.lock import alone
    from tasks.tokens.importing import ImportConfig, adopt_tokenizer, build, examine, pairs_in

    request = request_of(preset, root, preset_file, overrides)
    p = load_preset(request)
    prefixes = pairs_in(pairs)
    with alone(root, "openk2 tokens import"), shown(out):
        learned = adopt_tokenizer(Path(tokenizer), root) if tokenizer else graph(request, p)["tokenizer"]
        tokens_of = learned.require()
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
