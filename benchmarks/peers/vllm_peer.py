"""vLLM's side of benchmarks/model.py, in vLLM's environment: `vllm_peer.py SETTINGS`, a turn for each line read.

Offline and in one process, so that its CPU time is all there is: no server, no tokenizer; eager or compiled. vLLM 0.32
turns but the first head of a query with its own rotary kernel where a model has no YaRN; torch's takes its place.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time


def main() -> None:
    settings = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints goes elsewhere
    os.environ |= {
        **{"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
        **{"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"},
    }
    from vllm import LLM, SamplingParams

    model = LLM(
        settings["folder"],
        skip_tokenizer_init=True,
        dtype=settings["dtype"],
        enforce_eager=settings["form"] == "eager",
        compilation_config={"custom_ops": ["-rotary_embedding"]},
        max_model_len=256,
        max_num_seqs=settings["rows"],
    )
    greedy = SamplingParams(temperature=0, max_tokens=settings["new"], ignore_eos=True, detokenize=False)
    for line in sys.stdin:
        draw = random.Random(int(line))
        asked = [
            {"prompt_token_ids": [draw.randrange(3, 8000) for _ in range(settings["prompt"])]}
            for _ in range(settings["rows"])
        ]
        began = time.process_time()
        done = model.generate(asked, greedy, use_tqdm=False)
        cpu = time.process_time() - began
        rows = [list(one.outputs[0].token_ids) for one in done]
        print(json.dumps({"cpu": cpu, "tokens": sum(map(len, rows)), "rows": rows}), file=answers, flush=True)


if __name__ == "__main__":
    main()
