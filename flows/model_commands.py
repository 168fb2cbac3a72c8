"""`openk2 model`: a network in numbers, and the sizes there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import FileOption, RequestError, SetOption, request_of
from flows.request import PresetName
from flows.tables import styled, table
from flows.terminal import Terminal
from tasks.report import words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from model.config import ModelConfig
    from model.describe import Description

network = typer.Typer(
    name="model",
    help="Parameters, FLOPs and cache of a network, and the named sizes.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
out = Terminal()


@network.command()
def describe(
    preset: Annotated[
        str, typer.Option("--preset", "-p", help="A recipe, or a size of `openk2 model sizes`.")
    ] = PresetName.laptop.value,
    preset_file: FileOption = None,
    overrides: SetOption = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Read the config.json of this Hugging Face folder instead.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show parameters by component, FLOPs per token and cache per token, without building the network.

    Examples:

    - `openk2 model describe --preset k2`: Kimi K2, compared with its report.

    - `openk2 model describe --preset 3b --json`: a size of the ladder, for a script.

    - `openk2 model describe --preset laptop --set pretrain.model.n_routed_experts=64`: a recipe's network, changed.

    - `openk2 model describe --checkpoint FOLDER`: a downloaded checkpoint.
    """
    from model.describe import describe as described

    told = described(*_chosen(preset, preset_file, overrides, checkpoint))
    if json:
        typer.echo(told.model_dump_json(indent=2))
        return
    for part in _tables(told):
        out.print(part)
        out.print()


@network.command()
def sizes() -> None:
    """List the named sizes with their dimensions, parameters and cache."""
    from model.config import cache_values_per_token, parameter_count
    from model.describe import CACHE_BYTES
    from model.sizes import MODEL_PRESETS

    rows = table("size", "width", "layers", "heads", "experts", "their width", "total", "active", "cache")
    for name, config in MODEL_PRESETS.items():
        count = parameter_count(config)
        rows.add_row(
            name,
            f"{config.hidden_size:,}",
            f"{config.num_hidden_layers}",
            f"{config.num_attention_heads}x{config.v_head_dim}",
            f"{config.num_experts_per_tok}/{config.n_routed_experts}",
            f"{config.moe_intermediate_size:,}",
            words.short(count.total),
            words.short(count.active),
            f"{CACHE_BYTES * cache_values_per_token(config):,}",
        )
    out.print(rows)
    out.print(
        "\nheads: how many, and their value's size. experts: those a token visits, of all. cache: bytes per token."
    )
    out.print("`openk2 model describe --preset SIZE` says more.")


def _chosen(
    preset: str, preset_file: str | None, overrides: list[str] | None, checkpoint: Path | None
) -> tuple[str, ModelConfig]:
    """The network that is meant, and what to call it."""
    from model.config import ModelConfig
    from model.sizes import MODEL_PRESETS

    if checkpoint:
        if preset_file or overrides:
            raise RequestError("--checkpoint is a network by itself: --preset-file and --set change recipes")
        from model.convert import read_config

        try:
            return str(checkpoint), ModelConfig.from_hf(read_config(checkpoint))
        except (FileNotFoundError, ValueError) as error:
            raise RequestError(f"--checkpoint {checkpoint}: {error}") from None
    if preset_file or preset in list(PresetName):
        from flows.preset import load_preset

        name = PresetName.laptop if preset_file else PresetName(preset)
        request = request_of(name, "data", preset_file, overrides)
        return preset_file or preset, load_preset(request).pretrain.model
    if preset not in MODEL_PRESETS:
        known = dict.fromkeys([*PresetName, *MODEL_PRESETS])
        raise typer.BadParameter(f"there is no '{preset}': choose one of {', '.join(known)}", param_hint="--preset")
    if overrides:
        raise typer.BadParameter(f"'{preset}' is a size and no recipe: --set changes recipes", param_hint="--set")
    return preset, MODEL_PRESETS[preset]


def _tables(told: Description) -> list[RenderableType]:
    c = told.config
    queries = "" if c.q_lora_rank is None else f"{c.q_lora_rank:,} for queries and "
    shape = styled(
        (told.name, "bold"),
        f": {c.num_hidden_layers} layers ({c.first_k_dense_replace} dense), {c.hidden_size:,} "
        f"wide, {c.num_attention_heads} heads of {c.qk_nope_head_dim} + {c.qk_rope_head_dim}, latents of "
        f"{queries}{c.kv_lora_rank} for keys and values, {c.n_routed_experts} experts of {c.moe_intermediate_size:,} "
        f"({c.num_experts_per_tok} and {c.n_shared_experts} shared for each token), vocabulary {c.vocab_size:,}",
    )
    parts = table("component", "parameters", "share", "active per token")
    for part in told.components:
        share = f"{part.parameters / told.total:.2%}"
        parts.add_row(part.name.replace("_", " "), f"{part.parameters:,}", share, f"{part.active:,}")
    parts.add_section()
    parts.add_row("total", f"{told.total:,}", "", f"{told.active:,}", style="bold")
    if report := told.reported:
        parts.add_row("as reported", f"{report.total / 1e12:.2f}T", "", f"{report.active / 1e9:.1f}B")
        difference = f"{told.total / report.total - 1:+.1%}", f"{told.active / report.active - 1:+.1%}"
        parts.add_row("ours beside it", difference[0], "", difference[1])
    biases = (
        f"{told.router_biases:,} of the total are the routers' correction biases, which no gradient trains: "
        f"{told.trainable:,} are trained."
    )
    flops = table("FLOPs per token", "forward", "training", "attention's scores")
    for row in told.flops:
        flops.add_row(
            f"{row.sequence_length:,} tokens", f"{row.forward:.3e}", f"{row.training:.3e}", f"{row.scores:.1%}"
        )
    cache = table("cache in bfloat16", "a token", f"{c.max_position_embeddings:,} tokens")
    for name, size in (("latents (MLA)", told.cache.latent), ("plain attention", told.cache.plain)):
        cache.add_row(name, f"{size:,} bytes", f"{size * c.max_position_embeddings / 2**20:,.1f} MiB")
    cache.add_row("plain / latents", f"{told.cache.plain / told.cache.latent:.1f}", "")
    return [shape, parts, biases, flops, cache]
