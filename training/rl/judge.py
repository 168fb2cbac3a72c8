"""A model behind an endpoint that judges what no rule can, one question at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from model.engines.engine import EngineError, Message, Prompt, Sampling
from model.engines.openai import OpenAI
from training.rl.config import JudgeConfig
from training.rl.environments import EnvironmentUnavailable
from training.rl.environments.final import affirms
from training.rl.quoting import DATA, quoted

log = logging.getLogger(__name__)

SUPPORT = (
    "A source:\n\n{source}\n\nA sentence:\n\n{sentence}\n\n"
    f"{DATA} "
    "Does the source say everything that the sentence says? Answer yes or no."
)
TOKENS = 16


class Judge:
    """Questions to `OpenAI`, answered by the likeliest text; use it as `with Judge(...) as judge`."""

    def __init__(self, config: JudgeConfig, url: str | None = None) -> None:
        """`url`: that of `execution.judge_url`, where `config` says none. Raises EnvironmentUnavailable without one,
        or for one that is no URL."""
        if not (where := config.url or url):
            raise EnvironmentUnavailable(
                f"rl.judge asks for the model '{config.model}' and nothing says where it is: set execution.judge_url "
                "to the server's URL, such as http://localhost:8000/v1, or leave rl.judge out, and with it the sets "
                "`faithful` and `judged`"
            )
        try:
            self.engine = OpenAI(where, config.model)
        except EngineError as error:
            raise EnvironmentUnavailable(f"rl.judge: {error}") from None

    def __enter__(self) -> Judge:
        self.engine.__enter__()
        return self

    def __exit__(self, *given: object) -> None:
        self.engine.__exit__(*given)

    def __call__(self, question: str) -> str:
        return self.all([question])[0]

    def all(self, questions: Sequence[str]) -> list[str]:
        """What it says to each; nothing where its server refuses the question (a filter, its window): a policy wrote
        what stands in there, and must not be able to end its run."""
        prompts = [Prompt((Message("user", question),), Sampling(temperature=0.0), TOKENS, 0) for question in questions]
        try:
            found = self.engine.answered(prompts)
        except EngineError as error:
            raise EnvironmentUnavailable(f"rl.judge: {error}") from None
        if refused := found.count(None):
            log.warning("rl.judge: %d of %d questions were refused and count for nothing", refused, len(found))
        return ["" if completion is None else completion.text for completion in found]

    def support(self, source: str, sentences: Sequence[str]) -> list[float]:
        """For each sentence 1.0 where the source says it, 0.0 where not."""
        shown = quoted(source, "source")
        said = self.all([SUPPORT.format(source=shown, sentence=quoted(one, "sentence")) for one in sentences])
        return [float(affirms(answer)) for answer in said]
