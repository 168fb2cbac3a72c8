"""Configuration of the tools stage."""

from __future__ import annotations

from pydantic import Field

from model.engines.choice import EngineConfig
from model.engines.engine import Sampling
from tasks.agentic.mcp.config import RecordingConfig, ServerConfig
from tasks.corpus.dedup.config import NearConfig


class ProposerConfig(EngineConfig):
    """A model that proposes domains and tools. What it writes passes the same rules as what the grammar makes."""

    domains: int = Field(default=24, ge=1)
    """Domains asked for, the categories in turn."""
    tools: int = Field(default=12, ge=1, le=40)
    """Tools asked for in each."""
    max_tokens: int = Field(default=6000, ge=256)
    """Longest answer."""
    sampling: Sampling = Sampling(temperature=1.0)
    """How it draws."""


class ToolsConfig(RecordingConfig):
    """Synthetic tools, evolved category by category, domain by domain (K2 report 3.1.1: more than 20,000)."""

    count: int = Field(default=600, ge=1)
    """Tools that are wanted, all different."""
    per_domain: int = Field(default=24, ge=1, le=40)
    """Tools that are tried on each domain."""
    declaration_max: int = Field(default=4096, ge=256)
    """Characters of a tool's declaration: longer ones crowd the context of every dialogue that offers them."""
    calls: int = Field(default=16, ge=2)
    """Calls with valid arguments after which a tool that never succeeded is given up."""
    near: NearConfig = NearConfig(ngram=3)
    """When two tools are the same: name, description and arguments as text, without what their application is called;
    in shingles of three tokens, for declarations are short."""
    proposer: ProposerConfig | None = None
    """A model that proposes tools besides the grammar; None asks none."""
    servers: tuple[ServerConfig, ...] = ()
    """Real tools: servers of the Model Context Protocol, rows as in a file of servers (docs/agentic/mcp.md). They are
    called once, and what they answered is kept for `dialogues.servers`."""
