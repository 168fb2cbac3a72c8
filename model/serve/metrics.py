"""What `/metrics` tells, in Prometheus's text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from model.serve.worker import Worker

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """The counters of one server."""

    def __init__(self, worker: Worker) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "openk2_requests", "Requests answered, by path and status.", ("path", "status"), registry=self._registry
        )
        self.prompt_tokens = Counter("openk2_prompt_tokens", "Tokens of prompts.", registry=self._registry)
        self.new_tokens = Counter("openk2_generated_tokens", "Tokens generated.", registry=self._registry)
        self.first = Histogram(
            "openk2_first_token_seconds", "Until the first token.", registry=self._registry, buckets=SECONDS
        )
        self.whole = Histogram(
            "openk2_request_seconds", "Until the last token.", registry=self._registry, buckets=SECONDS
        )
        cancelled = "Requests whose client went away before the end."
        self.cancelled = Counter("openk2_cancelled", cancelled, registry=self._registry)
        Gauge("openk2_open", "Choices under way and waiting.", registry=self._registry).set_function(
            lambda: float(worker.open)
        )
        Gauge("openk2_rows", "Choices that may be under way at once.", registry=self._registry).set(worker.rows)

    def text(self) -> bytes:
        return generate_latest(self._registry)
