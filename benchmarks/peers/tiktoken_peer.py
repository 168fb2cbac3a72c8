"""The public tokenizer of `benchmarks/tokens.py compression`; runs under an interpreter that has tiktoken.

    python tiktoken_peer.py RANKS.json TEXTS.json

RANKS is one of the encoders of npm's package `tiktoken`; TEXTS holds {domain: [text, ...]}. Prints
{"bytes_per_token": {domain: value}}.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import tiktoken


def main() -> None:
    record, domains = (json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:])
    ranks: dict[bytes, int] = {}
    for line in record["bpe_ranks"].splitlines():
        _, first, *tokens = line.split(" ")
        ranks |= {base64.b64decode(token): int(first) + place for place, token in enumerate(tokens)}
    encoding = tiktoken.Encoding("public", pat_str=record["pat_str"], mergeable_ranks=ranks, special_tokens={})
    found = {
        domain: sum(len(text.encode()) for text in texts) / sum(len(encoding.encode_ordinary(text)) for text in texts)
        for domain, texts in domains.items()
    }
    print(json.dumps({"bytes_per_token": found, "entries": len(ranks)}))


if __name__ == "__main__":
    main()
