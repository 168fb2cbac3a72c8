"""The process that judges support: a question a line on stdin, its answer a line on stdout. It starts by its path, is
told where our packages lie, and imports of ours only `model.engines`.

    fidelity_worker.py FOLDER_OF_OUR_PACKAGES PRECISION BASE.gguf LEARNED.safetensors...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    ours, precision, base, *learned = sys.argv[1:]
    # What a library prints must not end up among the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer) -> None:  # type: ignore[no-untyped-def]
        print(json.dumps(answer), file=out, flush=True)

    sys.path.insert(0, ours)
    try:
        import torch

        from model.engines.engine import EngineError, PromptRefused
        from model.engines.one_thread import OneThread
        from model.engines.support import Support
    except ImportError as error:
        say({"error": str(error)})
        return
    torch.set_num_threads(1)
    try:
        model = Support(Path(base), [Path(one) for one in learned], OneThread(), precision)
    except EngineError as error:
        say({"error": str(error)})
        return
    say({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        try:
            found = model.unsupported(question["source"], question["text"], question["sentences"])
        except PromptRefused as error:
            say({"refused": str(error)})
            continue
        say({"unsupported": [sentence.unsupported for sentence in found]})


if __name__ == "__main__":
    main()
