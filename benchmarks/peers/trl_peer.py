"""TRL's side of `benchmarks/rl.py`; runs under an interpreter that has TRL, on one thread.

    python trl_peer.py FOLDER      reads model/, tokenizer.json and job.json there, prints one line of JSON

Counted are whole training steps after the first, in CPU-seconds: generation, reward, one update.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Clock(TrainerCallback):
    """CPU-seconds at the end of every step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(process_time())


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(text.strip() == wanted) for text, wanted in zip(completions, answer, strict=True)]


def main() -> None:
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    torch.set_num_threads(1)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(job["stop"])
    tokenizer.pad_token = "[PAD]"
    # K2's architecture is DeepSeek-V3's, the only one of the two that transformers knows.
    config = json.loads((folder / "model" / "config.json").read_text())
    config |= {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    model.generation_config.eos_token_id = job["stop"]
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    rows, clock = len(job["rows"]), Clock()
    settings = GRPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=rows * job["responses"],
        num_generations=job["responses"],
        max_completion_length=job["budget"],
        max_steps=job["rounds"] + 1,
        temperature=1.0,
        learning_rate=1e-4,
        beta=0.0,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        shuffle_dataset=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=right,
        args=settings,
        train_dataset=Dataset.from_list(job["rows"] * (job["rounds"] + 1)),
        processing_class=tokenizer,
        callbacks=[clock],
    )
    trainer.train()
    samples = rows * job["responses"] * job["rounds"]
    print(json.dumps({"samples_per_cpu_second": samples / (clock.ends[-1] - clock.ends[0])}))


if __name__ == "__main__":
    main()
