"""Runs tests/pretend/checks.py: `python -m tests.pretend`. What autograd needs of a device is loaded before
torch, which asks for its devices when it is imported."""

import ctypes
import importlib
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("device.cpp")


def load() -> None:
    """Compile and load device.cpp."""
    (torch,) = importlib.util.find_spec("torch").submodule_search_locations
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/device.so"
        links = [f"-I{torch}/include", f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-lc10", "-ltorch_cpu"]
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", str(SOURCE), "-o", library, *links], check=True)
        ctypes.CDLL(library)


if __name__ == "__main__":
    load()
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # there is no GPU to compile for
    importlib.import_module("tests.pretend.checks").main()
