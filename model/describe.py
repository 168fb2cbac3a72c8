"""What a configuration amounts to: parameters by component, FLOPs and cache per token. Closed formulas, no torch."""

from __future__ import annotations

from model.config import (
    Config,
    ModelConfig,
    cache_values_per_token,
    flops_per_token,
    parameter_count,
    plain_cache_values_per_token,
    score_flops_per_token,
)

CACHE_BYTES = 2  # a cached number in bfloat16


class Component(Config):
    """One kind of parameter, summed over the layers."""

    name: str
    parameters: int
    """How many numbers are stored."""
    active: int
    """How many of them one token passes through."""


class Flops(Config):
    """Floating point operations per token of a sequence, matrix products only."""

    sequence_length: int
    forward: int
    training: int
    """Forward and backward."""
    scores: float
    """The share of attention's scores and weighted sums: what grows with the sequence."""


class Cache(Config):
    """Bytes that generation keeps of one token, in bfloat16."""

    latent: int
    """MLA: a latent and one rotated key per layer."""
    plain: int
    """Plain multi-head attention of the same heads: a key and a value per head and layer."""


class Reported(Config):
    """Kimi K2's parameters as its report states them (K2 report 2.3)."""

    total: float = 1.04e12
    active: float = 32.6e9


class Description(Config):
    """A network in numbers."""

    name: str
    config: ModelConfig
    components: tuple[Component, ...]
    total: int
    """All stored numbers, the routers' correction biases included."""
    trainable: int
    """`total` without those biases, which are buffers."""
    active: int
    """What one token passes through, both embeddings included."""
    router_biases: int
    flops: tuple[Flops, ...]
    cache: Cache
    reported: Reported | None
    """What the report says, where this is K2."""


def describe(name: str, config: ModelConfig) -> Description:
    """Describes `config` under `name`; FLOPs at its own window and at 8 and 32 times the one before YaRN, as K2's
    long-context stage and its release have it."""
    count = parameter_count(config)
    chosen = config.num_experts_per_tok
    active = count.components | {
        "routed_experts": count.components["routed_experts"] * chosen // config.n_routed_experts,
        "correction_bias": 0,
    }
    window = config.max_position_embeddings
    original = config.rope_scaling.original_max_position_embeddings if config.rope_scaling else window
    return Description(
        name=name,
        config=config,
        components=tuple(
            Component(name=part, parameters=number, active=active[part]) for part, number in count.components.items()
        ),
        total=count.total,
        trainable=count.trainable,
        active=count.active,
        router_biases=count.components["correction_bias"],
        flops=tuple(_flops(config, length) for length in sorted({window, original, 8 * original, 32 * original})),
        cache=Cache(
            latent=CACHE_BYTES * cache_values_per_token(config),
            plain=CACHE_BYTES * plain_cache_values_per_token(config),
        ),
        reported=Reported() if count == parameter_count(ModelConfig()) else None,
    )


def _flops(config: ModelConfig, length: int) -> Flops:
    forward = flops_per_token(config, length, training=False)
    return Flops(
        sequence_length=length,
        forward=forward,
        training=flops_per_token(config, length),
        scores=score_flops_per_token(config, length) / forward,
    )
