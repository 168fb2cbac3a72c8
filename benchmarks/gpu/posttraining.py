"""5. SFT and RL for some minutes on a network of 0.3B parameters, and its INT4 export, loaded and generated from.

Tokenizer and dialogues are those of the tests: bytes, and small tasks whose answers are known.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.common import Bench
from model.convert import as_served, to_hf_state
from model.generate import Generator, Request
from model.quantize import compress_experts, decompress_experts, fake_quantize_experts, is_routed_expert
from model.sizes import model_preset
from model.transformer import Transformer
from tests.posttraining import (
    DIALOGUES,
    VOCABULARY,
    dialogues_artifact,
    go,
    model_artifact,
    tokenizer_artifact,
    tokens_artifact,
    write_job,
)
from training.checkpoint import load_model
from training.metrics import read_metrics
from training.objective import Objective
from training.rl.train import Reinforcement
from training.sft import Tuning

IDS = {"vocab_size": VOCABULARY, "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": VOCABULARY - 1}
SFT = {"sequence_length": 1024, "rows": 32, "learning_rate": 1e-3, "warmup": 5, "max_updates": 60, "evaluate_every": 30,
       "evaluate_prompts": 26, "evaluate_samples": 4, "budget": 8, "int4": True, "dtype": "bfloat16",
       "optimizer": {"newton_schulz_dtype": "bfloat16"}}  # fmt: skip
RL = {"iterations": 10, "prompts": 64, "responses": 8, "learning_rate": 1e-4, "rewards": {"budget": 8},
      "environments": {"larger": 1.0}, "evaluate_prompts": 26, "evaluate_samples": 4, "ptx_samples": 4,
      "ptx_sequence_length": 1024, "int4": True, "dtype": "bfloat16",
       "optimizer": {"newton_schulz_dtype": "bfloat16"}}  # fmt: skip
LITTLE_SFT = {"sequence_length": 160, "rows": 2, "max_updates": 1, "evaluate_every": 1, "evaluate_prompts": 1,
              "evaluate_samples": 1, "text_sequence_length": 32, "dtype": "float32"}  # fmt: skip
LITTLE_RL = {"iterations": 1, "prompts": 1, "responses": 2, "evaluate_prompts": 1, "evaluate_samples": 1,
             "ptx_samples": 1, "ptx_sequence_length": 32, "dtype": "float32"}  # fmt: skip


def main() -> int:
    bench = Bench.begin("posttraining", __doc__)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        config = model_preset("1m" if bench.tiny else "300m", **IDS)
        if bench.tiny:
            config = config.replace(moe_intermediate_size=32, hidden_size=64)
        inputs = {"tokenizer": (tokenizer := tokenizer_artifact(root)), "tokens": tokens_artifact(root, 1_000_000),
                  "dialogues": dialogues_artifact(root, tokenizer, DIALOGUES)}  # fmt: skip
        base = model_artifact(root, Transformer(config, seed=0), "base")

        def job(kind: type[Objective], name: str, settings: dict[str, Any], source: str, start: Any) -> dict[str, Any]:
            path = write_job(root / name, settings, inputs | {source: start})
            path.write_text(json.dumps(json.loads(path.read_text()) | {"device": bench.device.type}))
            began = time.monotonic()
            if code := go(kind, path):
                return {"failed": f"exit code {code}: the log above says why"}
            updates = read_metrics(root / name / "metrics.jsonl", "update")
            seconds = time.monotonic() - began
            named = ("loss", "ptx_loss", "disagreement", "reward")
            last = {key: updates[-1][key] for key in named if key in updates[-1]}
            return {"updates": len(updates), "seconds": seconds, **last, "timing": updates[-1]["timing"]}

        bench.part("sft", lambda: job(Tuning, "sft", SFT | (LITTLE_SFT if bench.tiny else {}), "base", base))
        tuned = load_model(root / "sft" / "final")
        start = model_artifact(root, tuned, "tuned")
        bench.part("rl", lambda: job(Reinforcement, "rl", RL | (LITTLE_RL if bench.tiny else {}), "sft", start))
        bench.part("int4", lambda: export(bench, tuned))
    return bench.end()


def export(bench: Bench, model: Transformer) -> dict[str, Any]:
    """Packed on the device, unpacked there, and whether what is served is what training saw, bit for bit."""
    model = model.to(bench.device)
    packed = dict(compress_experts(to_hf_state(model).items()))
    plain = decompress_experts(packed, torch.float32)
    served = to_hf_state(as_served(model, int4=True))
    same = all(torch.equal(plain[name].cpu(), served[name]) for name in served if is_routed_expert(name))
    fake_quantize_experts(model)
    said = Generator(model.eval()).generate([Request([256, 70, 71], 16, 0.0)])
    return {"same_bits": same, "tokens": len(said[0].tokens)} | ({} if same else {"failed": "other bits"})


if __name__ == "__main__":
    sys.exit(main())
