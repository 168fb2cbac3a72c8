"""The stage against a real endpoint such as vLLM's. Runs only where one is named:

python infra/vllm_cpu.py &
OPENK2_VLLM_URL=http://127.0.0.1:8000/v1 OPENK2_VLLM_MODEL=smollm2 python -m pytest tests/tasks/rephrase/test_vllm.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
import polars as pl
import pytest

from model.engines.embedding import MiniLM
from tasks.artifact import Artifact, Step
from tasks.rephrase import rewriting
from tasks.rephrase.config import RephraseConfig, SegmentsConfig
from tests.tasks.rephrase.conftest import row, write_corpus
from tests.tasks.rephrase.pairs import PARAPHRASES

URL = os.environ.get("OPENK2_VLLM_URL", "")
MODEL = os.environ.get("OPENK2_VLLM_MODEL", "smollm2")

pytestmark = pytest.mark.skipif(not URL, reason="OPENK2_VLLM_URL names no endpoint (infra/vllm_cpu.py starts one)")


def answered() -> int:
    """Requests that vLLM has finished, by its own count."""
    told = httpx.get(URL.removesuffix("/v1") + "/metrics").text
    return sum(int(float(count)) for count in re.findall(r"(?m)^vllm:request_success_total\{.*\} (\S+)$", told))


@pytest.mark.timeout(900)
def test_the_stage_rewrites_through_vllm_with_its_prefix_cache_and_a_second_run_asks_nothing(
    tmp_path: Path, embedder: MiniLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.rephrase.alignment.networks.Networks", lambda _: embedder)
    texts = [source for source, _ in PARAPHRASES[:6]]
    corpus = write_corpus(tmp_path / "corpus", [row("\n\n".join(texts[at:] + texts[:at])) for at in range(3)])
    config = RephraseConfig(
        engine="endpoint",
        model=MODEL,
        characters=(1, 100_000),
        prompt="full",
        segments=SegmentsConfig(tokens=60, window=1024),
        attempts=1,
        rewritten=0.0,
    )

    def run(part: int) -> Artifact:
        # What documents are written together changes the artifact's identity and no request.
        step = Step("rewrites", config.model_copy(update={"part": part}), str(tmp_path))
        return rewriting.build(step, corpus, URL, 8, answers=tmp_path / "answers")

    before = answered()
    statistics = run(64).statistics
    asked = answered() - before
    assert statistics["documents_tried"] == 3
    assert statistics["segments"] == asked == statistics["requests"] > 6
    assert statistics["tokens_generated"] > asked
    # A document's next request begins with the whole of the one before.
    assert statistics["tokens_cached"] > 0.2 * statistics["tokens_prompt"]
    again = run(32)
    assert answered() - before == asked
    assert again.statistics["requests_reused"] == asked
    assert sum(pl.read_parquet(path).height for path in again.files("segments")) == asked
