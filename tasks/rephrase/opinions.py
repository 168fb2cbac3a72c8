"""What may be asked besides the checks: a judge, opened once for the whole stage."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType

from model.engines.answers import Answers
from model.engines.choice import open_engine
from model.engines.engine import Completion, Engine, EngineError, Prompt, RequestLimits
from tasks.rephrase.alignment.judge import Judge
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.ledger import Ledger


class Opinions:
    """Those that the configuration names; a context manager. Raises EngineError where one of them cannot be had."""

    def __init__(
        self, config: AlignmentConfig, judge_url: str | None, slots: int, limits: RequestLimits | None = None
    ) -> None:
        self._config = config
        self._closing = ExitStack()
        self._engine: Engine | None = None
        if config.judge is not None:
            url = judge_url if config.judge.engine == "endpoint" else None  # `scores.judge` may have its own use of it
            self._engine = open_engine(config.judge, url, slots, "rephrase.alignment.judge", "judge_url", limits)

    def judge(self, answers: Answers, spent: Ledger, stop: threading.Event) -> Judge | None:
        """The judge of one document: its answers are kept like those of the rewriter, its tokens counted in `spent`."""
        engine, config = self._engine, self._config.judge
        if engine is None or config is None:
            return None

        def ask(prompt: Prompt) -> Completion:
            if stop.is_set():
                raise EngineError("the run was stopped")
            answer, reused = answers.complete(engine, prompt)
            spent.judged(answer, reused)
            return answer

        return Judge(config, ask)

    def __enter__(self) -> Opinions:
        if self._engine is not None:
            self._closing.enter_context(self._engine)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()
