"""A batch of chat requests through what is used instead: datatrove's inference runner, or the openai client.

    python benchmarks/peers/inference_peer.py datatrove|openai REQUESTS.jsonl URL MODEL SLOTS RESULT.json

Runs in an environment of its own (see benchmarks/rephrase.py). A line of REQUESTS is the body of a chat request without
its model. Both send the same bodies with SLOTS in flight; neither checks an answer. The result is the wall and CPU
seconds of the work (the imports before it left out), the answers and their tokens.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path


def openai_client(bodies: list[dict], url: str, model: str, slots: int) -> tuple[int, int]:
    """The script that everybody writes: the official client behind a semaphore."""
    from openai import AsyncOpenAI

    async def work() -> list[int]:
        gate = asyncio.Semaphore(slots)
        async with AsyncOpenAI(base_url=url, api_key="none", timeout=600) as client:

            async def one(body: dict) -> int:
                extra = {"extra_body": {"top_k": body["top_k"]}} if "top_k" in body else {}
                known = {name: value for name, value in body.items() if name != "top_k"}
                async with gate:
                    answer = await client.chat.completions.create(model=model, **known, **extra)
                return answer.usage.completion_tokens

            return await asyncio.gather(*(one(body) for body in bodies))

    tokens = asyncio.run(work())
    return len(tokens), sum(tokens)


def datatrove_runner(bodies: list[dict], url: str, model: str, slots: int) -> tuple[int, int]:
    """One document a request, written to JSON Lines, as its examples do it."""
    from datatrove.data import Document
    from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
    from datatrove.pipeline.writers import JsonlWriter

    tokens: list[int] = []

    async def rollout(document: Document, generate) -> dict:
        answer = await generate(document.metadata["body"])
        tokens.append(answer.usage["completion_tokens"])
        return {"text": answer.text, "tokens": answer.usage["completion_tokens"]}

    config = InferenceConfig(
        server_type="endpoint",
        endpoint_url=url.removesuffix("/v1"),
        model_name_or_path=model,
        use_chat=True,
        max_concurrent_generations=slots,
        metric_interval=3600,
    )
    with tempfile.TemporaryDirectory() as folder:
        writer = JsonlWriter(folder, output_filename="answers.jsonl", compression=None)
        runner = InferenceRunner(rollout_fn=rollout, config=config, output_writer=writer)
        runner.run((Document(text="-", id=str(at), metadata={"body": body}) for at, body in enumerate(bodies)))
    return len(tokens), sum(tokens)


def main() -> None:
    kind, requests, url, model, slots, result = sys.argv[1:]
    run = {"openai": openai_client, "datatrove": datatrove_runner}[kind]
    bodies = [json.loads(line) for line in Path(requests).read_text(encoding="utf-8").splitlines()]
    run(bodies[:8], url, model, int(slots))
    began, cpu = time.monotonic(), time.process_time()
    answers, tokens = run(bodies, url, model, int(slots))
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    Path(result).write_text(json.dumps({"seconds": seconds, "cpu": cpu, "answers": answers, "tokens": tokens}))


if __name__ == "__main__":
    main()
