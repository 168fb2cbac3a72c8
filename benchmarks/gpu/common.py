"""What the scripts of this folder share: arguments, a device's clock, the machine, and the record they leave."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch

from model.config import ModelConfig
from model.sizes import model_preset
from model.transformer import Transformer
from training.expert_parallel import network
from training.parallel import World

HOUSE = Path(__file__).resolve().parents[2]
OUT = HOUSE / "build" / "gpu"
PEAK = 989e12
"""Dense bfloat16 FLOP/s that NVIDIA gives for an H100 and an H200."""
LENGTH, ROWS = 4096, 8
TINY = {"layers": 2, "length": 32, "rows": 2}
"""On a CPU the scripts only show that they run."""


@dataclass
class Bench:
    """One script's run."""

    name: str
    device: torch.device
    out: Path
    parts: str
    """What the name of a part that is measured begins with, as a regular expression."""
    found: dict[str, Any]
    """What it has measured, written after every part: a script that is ended leaves what it had."""

    @classmethod
    def begin(cls, name: str, doc: str | None) -> Bench:
        """By the command line."""
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: only whether it runs")
        parser.add_argument("--out", type=Path, default=OUT, help="where NAME.json goes")
        parser.add_argument("--parts", default="", help="only parts whose names begin so (a regular expression)")
        given = parser.parse_args()
        if given.device == "cuda" and not torch.cuda.is_available():
            parser.error("no GPU here; --device cpu shows that the script runs")
        given.out.mkdir(parents=True, exist_ok=True)
        return cls(name, torch.device(given.device), given.out, given.parts, {"machine": machine(given.device)})

    @property
    def tiny(self) -> bool:
        """Whether nothing is measured."""
        return self.device.type == "cpu"

    @property
    def kind(self) -> Literal["cpu", "cuda"]:
        """The device as configurations name it."""
        return "cpu" if self.tiny else "cuda"

    @property
    def config(self) -> ModelConfig:
        """The gpu preset's network, with the vocabulary of that recipe."""
        if self.tiny:
            return model_preset("tiny")
        return model_preset("gpu", vocab_size=65_536, bos_token_id=65_519, eos_token_id=65_520, pad_token_id=65_535)

    def model(self, config: ModelConfig | None = None, dtype: torch.dtype = torch.float32) -> Transformer:
        """A network whose weights are drawn on the device itself: no two devices draw alike."""
        config = config or self.config
        model = network(config, None, World(), self.device, weights=dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1.0) if parameter.dim() < 2 else parameter.normal_(0.0, config.initializer_range)
            for buffer in model.buffers():
                buffer.zero_()
        return model

    def part(self, name: str, measure: Callable[[], Any]) -> Any:
        """One part of what is measured; one that fails is told in its place, and the others follow."""
        if not re.match(self.parts, name):
            return {}
        began = time.perf_counter()
        try:
            self.found[name] = measure()
        except Exception as error:  # whatever it is, an hour on a GPU has other questions
            traceback.print_exc()
            self.found[name] = {"failed": f"{type(error).__name__}: {str(error).replace(chr(10), ' ')[:300]}"}
        print(f"{name} ({time.perf_counter() - began:.1f} s): {json.dumps(self.found[name])}", flush=True)
        (self.out / f"{self.name}.json").write_text(json.dumps(self.found, indent=1) + "\n")
        return self.found[name]

    def end(self) -> int:
        """The exit code: 1 where a part failed."""
        return int(any(isinstance(value, Mapping) and "failed" in value for value in self.found.values()))

    def wait(self) -> None:
        """Until the device has done all that was begun."""
        if not self.tiny:
            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], Any], rounds: int = 5, warm: int = 2) -> float:
        """The median of some rounds of `run`, after some that do not count."""
        rounds, warm = (1, 0) if self.tiny else (rounds, warm)
        taken = []
        for number in range(warm + rounds):
            self.wait()
            began = time.perf_counter()
            run()
            self.wait()
            if number >= warm:
                taken.append(time.perf_counter() - began)
        return median(taken)

    def free(self) -> None:
        """Give back what nobody holds, and begin a new peak."""
        if not self.tiny:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def bandwidth(self) -> float:
        """Bytes a second that a copy within the device's memory reads and writes."""
        source = torch.empty(1 << (12 if self.tiny else 31), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * source.numel() / self.seconds(lambda: target.copy_(source))

    def products(self) -> float:
        """FLOP/s of a square product in bfloat16, on numbers and not on zeros, which are faster."""
        side = 64 if self.tiny else 8192
        a, b = (torch.randn(side, side, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        return 2 * side**3 / self.seconds(lambda: a @ b, rounds=10)


def machine(device: str) -> dict[str, Any]:
    """Where and with what it was measured."""
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "device": device,
    }
    if device == "cuda":
        named = torch.cuda.get_device_properties(0)
        found |= {"device": named.name, "memory_bytes": named.total_memory, "cuda": torch.version.cuda}
    return found
