"""A harness, as a user would write one: asks the model every question given, and writes its scores.

    python asking.py httpx|openai QUESTION...

It knows nothing of openk2 but what the environment says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path


def by_httpx() -> Callable[[str], str]:
    import httpx

    key = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    client = httpx.Client(base_url=os.environ["OPENAI_BASE_URL"], headers=key, timeout=60, trust_env=False)

    def ask(question: str) -> str:
        body = {"model": os.environ["OPENK2_MODEL"], "prompt": question, "max_tokens": 8, "temperature": 0}
        return client.post("completions", json=body).raise_for_status().json()["choices"][0]["text"]

    return ask


def by_openai() -> Callable[[str], str]:
    import openai

    client = openai.OpenAI()  # finds address and key by itself

    def ask(question: str) -> str:
        model = os.environ["OPENK2_MODEL"]
        return client.completions.create(model=model, prompt=question, max_tokens=8, temperature=0).choices[0].text

    return ask


client, *questions = sys.argv[1:]
ask = by_httpx() if client == "httpx" else by_openai()
rows = [{"id": one, "score": place == 0, "reply": ask(one)} for place, one in enumerate(questions)]
told = {"id": "told", "score": 0.0, "reply": json.dumps(dict(os.environ)), "why": str(list(Path().iterdir()))}
rows = [row | {"score": float(row["score"])} for row in [*rows, told]]
Path(os.environ["OPENK2_SCORES"]).write_text(json.dumps({"measure": "resolved", "rows": rows}), encoding="utf-8")
