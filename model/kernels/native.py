"""The kernels of `decode_kernels.c`, built by the machine's own C compiler: once, in a second, into the user's cache.

Letters as in `model/decode.py`. They need Linux and AVX512-BF16 (AMD Zen 4, Intel Cooper Lake and later). A call
runs in one thread; torch's number of threads share the rows, which changes no bit of a row.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from model.kernels.threads import share

SOURCE = Path(__file__).with_name("decode_kernels.c")
HEADS, ROWS, LANES, TILE = 4, 8, 16, 16  # of the blocks in decode_kernels.c
_SETS = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512bf16", "amx-tile", "amx-bf16")  # the last two if there
_FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", *(f"-m{one}" for one in _SETS))

log = logging.getLogger(__name__)


@cache
def kernels() -> Kernels | None:
    """The kernels, or None where this CPU or a missing compiler rules them out; then torch's products take their
    place."""
    if not _has_bf16():
        return None
    try:
        return Kernels(ctypes.CDLL(str(_built())))
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        log.warning("no native decoding kernels, generation will be slower: %s", error)
        return None


class Kernels:
    """Typed calls of the library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        number, pointer = ctypes.c_long, ctypes.c_void_p
        self._attend, self._mix = library.attend, library.mix
        self._attend.argtypes, self._attend.restype = [number] * 5 + [pointer] * 6, None
        self._attend_tiles, self._multiply = library.attend_tiles, library.multiply
        self._attend_tiles.argtypes, self._attend_tiles.restype = self._attend.argtypes, None
        # the system lets a process use AMX's tiles where it asks
        self.tiles: bool = torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx()
        self._multiply.argtypes, self._multiply.restype = [number] * 4 + [ctypes.c_int] + [pointer] * 4, None
        self._prompts = library.prompts
        self._prompts.argtypes, self._prompts.restype = [number] * 7 + [pointer] * 7, None
        self._mix.argtypes, self._mix.restype = [number] * 5 + [pointer] * 8, None
        self._norm, self._turn = library.norm, library.turn
        self._norm.argtypes = [number] * 3 + [ctypes.c_int] + [pointer] * 2 + [ctypes.c_float, pointer]
        self._turn.argtypes = [number] * 5 + [pointer] * 2
        self._route = library.route
        self._route.argtypes = [number] * 5 + [ctypes.c_float] + [pointer] * 6
        self._route.restype = self._norm.restype = self._turn.restype = None

    def attend(self, q_NHK: Tensor, keys_NTK: Tensor, seen_N: Tensor, rank: int) -> Tensor:
        """softmax(q k^T) k[:, :rank] of each row over its first `seen_N` places (int64, at least one); (N, H, rank).

        All bfloat16 but `seen_N`, all in one piece; H a multiple of HEADS.
        """
        rows, heads, width = q_NHK.shape
        places = keys_NTK.shape[1]
        y_NHC = q_NHK.new_empty(rows, heads, rank)
        tiled = self.tiles and not (rank % 32 or width % 32 or places % 32)
        attend, block = (self._attend_tiles, TILE) if tiled else (self._attend, HEADS)
        room = block * (places + 2 * LANES)

        def some(first: int, end: int) -> None:
            part = slice(first, end)
            z, p = torch.empty(room + tiled * 8 * width), torch.empty(room, dtype=torch.bfloat16)
            tensors = (*(tensor[part] for tensor in (seen_N, q_NHK, keys_NTK, y_NHC)), z, p)
            pointers = (tensor.data_ptr() for tensor in tensors)
            attend(part.stop - part.start, heads, rank, width, places, *pointers)

        share(rows, rows, some)
        return y_NHC

    def multiply(self, x_NBI: Tensor, weights: Tensor, y_NBO: Tensor) -> Tensor:
        """y = x w^T for each of B weights of `packed`; where the machine has `tiles`.

        x is bfloat16, y bfloat16 or float32: their last dimensions lie in one piece, the others as they like.
        """
        rows, batch, ins = x_NBI.shape
        by = (ctypes.c_int64 * 4)(x_NBI.stride(1), x_NBI.stride(0), y_NBO.stride(1), y_NBO.stride(0))

        def some(first: int, end: int) -> None:
            pointers = (x_NBI[first:end].data_ptr(), weights.data_ptr(), y_NBO[first:end].data_ptr())
            wide = y_NBO.dtype == torch.float32
            self._multiply(batch, end - first, y_NBO.shape[2], ins, wide, ctypes.addressof(by), *pointers)

        share(rows, -(-rows // TILE), some)
        return y_NBO

    def prompts(self, q_PSHQ: Tensor, up_PSHO: Tensor, rotated_PSR: Tensor) -> Tensor:
        """Causal attention of P prompts of S tokens: softmax(q k^T) v in bfloat16, (P, S, H, V).

        Args:
            q_PSHQ: scaled queries, their rotated R dimensions last; in one piece.
            up_PSHO: each head's key without position, Q - R wide, beside its value; in one piece.
            rotated_PSR: the heads' shared rotated key; tokens may lie apart, all equally far.
        """
        count, length, heads, width = q_PSHQ.shape
        rope = rotated_PSR.shape[-1]
        nope = width - rope
        value = up_PSHO.shape[-1] - nope
        by = rotated_PSR.stride(1 if length > 1 else 0)  # a dimension of one has any stride
        y_PSHV = q_PSHQ.new_empty(count, length, heads, value)
        room = HEADS * (length + 2 * LANES)

        def some(first: int, end: int) -> None:
            part = slice(first, end)
            z, p = torch.empty(room), torch.empty(room + value, dtype=torch.bfloat16)
            tensors = (*(tensor[part] for tensor in (q_PSHQ, up_PSHO, rotated_PSR, y_PSHV)), z, p, p[room:])
            pointers = (tensor.data_ptr() for tensor in tensors)
            sizes = (part.stop - part.start, length, heads, nope, rope, value, by)
            self._prompts(*sizes, *pointers)

        share(count, count, some)
        return y_PSHV

    def mix(
        self, x_ND: Tensor, chosen_NK: Tensor, weights_NK: Tensor, gate: Tensor, up: Tensor, down: Tensor
    ) -> Tensor:
        """The sum over each row's experts of weight * down(silu(gate(x)) * up(x)); (N, D), float32.

        Args:
            x_ND: bfloat16, in one piece.
            chosen_NK: K experts of each row, int64.
            weights_NK: their weights, float32.
            gate: of `packed`, as `up` and `down`.
        """
        rows, hidden = x_ND.shape
        experts, inner = len(gate), gate.shape[1] * LANES
        out_ND = torch.zeros(rows, hidden)

        def some(first: int, end: int) -> None:
            part = slice(first, end)
            room = torch.empty(ROWS * inner, dtype=torch.bfloat16)
            tensors = (chosen_NK[part], weights_NK[part], x_ND[part], gate, up, down, out_ND[part], room)
            pointers = (tensor.data_ptr() for tensor in tensors)
            self._mix(part.stop - part.start, chosen_NK.shape[1], experts, hidden, inner, *pointers)

        share(rows, rows, some)
        return out_ND

    def route(
        self, x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor, top: int, scaling: float, shared: int
    ) -> tuple[Tensor, Tensor]:
        """Experts (N, K + shared) and weights of each row: those of `moe.Router`, then the shared ones at weight 1.

        x_ND bfloat16, in one piece; the router's weight and bias float32; K = `top`, at most E.
        """
        rows, experts = len(x_ND), len(weight_ED)
        chosen_NK = torch.empty(rows, top + shared, dtype=torch.int64)
        weights_NK, scores_NE = torch.empty(rows, top + shared), torch.empty(rows, experts)
        tensors = (x_ND, weight_ED, bias_E, chosen_NK, weights_NK, scores_NE)
        sizes = (rows, experts, x_ND.shape[1], top, top + shared)
        self._route(*sizes, scaling, *(tensor.data_ptr() for tensor in tensors))
        return chosen_NK, weights_NK

    def norm(self, x_ND: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        """x / rms(x) * weight in bfloat16, (N, D), of bfloat16 or float32 with columns side by side; weight float32."""
        rows, size = x_ND.shape
        y_ND = torch.empty(rows, size, dtype=torch.bfloat16)
        wide = x_ND.dtype == torch.float32
        pointers = (x_ND.data_ptr(), weight_D.data_ptr())
        self._norm(rows, size, x_ND.stride(0), wide, *pointers, eps, y_ND.data_ptr())
        return y_ND

    def turn(self, x_NHR: Tensor, turn_NP: Tensor) -> None:
        """Turns neighbouring pairs of the last dimension, bfloat16, in place; complex64 turns by row, in one piece."""
        rows, heads, rotated = x_NHR.shape
        by_row, by_head, _ = x_NHR.stride()
        self._turn(rows, heads, rotated // 2, by_row, by_head, x_NHR.data_ptr(), turn_NP.data_ptr())


def packed(weight_EOI: Tensor) -> Tensor:
    """Weights of experts as `Kernels.mix` reads them, (E, O / 16, I / 2, 16, 2); O and I are multiples of LANES."""
    return weight_EOI.unflatten(1, (-1, LANES)).unflatten(-1, (-1, 2)).transpose(2, 3).contiguous()


def _has_bf16() -> bool:
    """Whether this CPU has AVX512-BF16, and ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA do not hide it from torch."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    try:
        return "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:  # no Linux
        return False


def _built() -> Path:
    """The library, built where there is none of this source yet."""
    source = SOURCE.read_bytes()
    compiler = os.environ.get("CC", "").split() or ["cc"]
    name = f"decode-{hashlib.sha256(source + ' '.join(_FLAGS).encode()).hexdigest()[:16]}.so"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openk2"
    library = folder / name
    if not library.is_file():
        if shutil.which(compiler[0]) is None:
            raise FileNotFoundError("no C compiler; install gcc or clang, or name one in CC")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            half = Path(place) / name
            done = subprocess.run([*compiler, *_FLAGS, "-o", str(half), str(SOURCE)], capture_output=True, text=True)
            if done.returncode:
                raise OSError(f"{compiler[0]} failed; name another compiler in CC: {done.stderr.strip()[:200]}")
            half.replace(library)  # whole or not at all, whoever builds beside us
    return library
