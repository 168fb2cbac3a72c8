"""One llama.cpp server in a process of its own: `python -m model.engines.llama_server MODEL CONTEXT`.

Reads one JSON request a line from its standard input and writes one JSON answer a line to its standard output; the
first line it writes says that it is ready, or what went wrong. It ends when its input does, or with its parent.
A process, because llama.cpp may hang or crash, above all when it is closed: a process can always be killed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from typing import Any


def main() -> None:
    """Serve until the input ends."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    # llama.cpp writes to standard output too: what it says goes to the log, the answers alone to the pipe.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(value: Any) -> None:
        answers.write(json.dumps(value).encode() + b"\n")
        answers.flush()

    try:
        server = _server(sys.argv[1], int(sys.argv[2]))
    except RuntimeError as error:
        say({"error": str(error)})
        os._exit(1)
    say({"ready": True})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            answer = server.handle_chat_completions(request)
        except Exception as error:  # thrown by llama.cpp over one prompt: the next one may be sound
            answer = {"error": {"code": 422, "message": f"{type(error).__name__}: {error}"[:500]}}
        say(answer)
    os._exit(0)  # nothing to save; the server's own end may hang


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _server(path: str, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    # Determinism: see llamacpp.py.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.kv_unified = False
    params.cache_ram_mib = 0  # no copies of idle prompts: a document is over when it is over
    params.n_ctx_checkpoints = 0
    params.fit_params = False
    params.warmup = False
    params.verbosity = -1
    # Requests come through the pipe alone. llama.cpp insists on listening too, and a port would obey every user of the
    # machine: it gets a socket in a folder of ours, which is gone as soon as it listens.
    with tempfile.TemporaryDirectory() as folder:
        params.hostnames = [f"{folder}/http.sock"]
        server = xllamacpp.Server(params)
        server.handle_completions({"prompt": "a", "n_predict": 1})
    return server


if __name__ == "__main__":
    main()
