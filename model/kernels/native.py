"""The kernels of `decode_kernels.c`, built by the machine's own C compiler: once, in a second, into the user's cache.

Letters as in `model/decode.py`. In bfloat16 they need Linux and AVX512-BF16 (AMD Zen 4, Intel Cooper Lake and
later), in float32 AVX2. A call runs in one thread; torch's number of threads share the rows, which changes no bit of a
row.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from model.cache import cache_folder
from model.config import INT4_GROUP
from model.kernels.threads import share

SOURCES = [Path(__file__).with_name(name) for name in ("decode_kernels.c", "decode_bf16.h", "decode_float32.h")]
HEADS, ROWS, TILE = 4, 8, 16  # of the blocks in decode_kernels.c, which hold so many or fewer
FEW = 64  # rows that AMX's tiles multiply; oneDNN is as fast with more
SPARE = 32  # places of scratch beyond the last
SOME = 1 << 20  # bytes of weights that are made and laid out together
GROUP, LEAST = INT4_GROUP, 4096  # numbers of a group of INT4, and groups for which a thread is woken
_LANES = {torch.bfloat16: (16, 2), torch.float32: (8, 1)}  # of a vector, and numbers in each
_SETS = {
    # AMX only if it is there
    torch.bfloat16: ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512bf16", "amx-tile", "amx-bf16"),
    torch.float32: ("avx2", "fma"),
}

log = logging.getLogger(__name__)


@cache
def kernels(dtype: torch.dtype) -> Kernels | None:
    """The kernels for numbers of `dtype`, or None where this CPU or a missing compiler rules them out; then torch's
    products take their place."""
    if dtype not in _SETS or not _serves(dtype):
        return None
    try:
        return Kernels(_loaded(dtype), dtype)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        log.warning("no native decoding kernels, generation will be slower: %s", error)
        return None


class Kernels:
    """Typed calls of the library. Numbers are of `dtype` where nothing else is said."""

    def __init__(self, library: ctypes.CDLL, dtype: torch.dtype) -> None:
        number, pointer = ctypes.c_long, ctypes.c_void_p
        self.dtype = dtype
        self._attend = library.attend
        self._attend.argtypes, self._attend.restype = [number] * 5 + [pointer] * 6, None
        # the system lets a process use AMX's tiles where it asks
        self._tiles: bool = dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx()
        if self._tiles:
            self._attend_tiles = library.attend_tiles
            self._attend_tiles.argtypes, self._attend_tiles.restype = self._attend.argtypes, None
        narrow = dtype == torch.float32 and torch.backends.cpu.get_cpu_capability() == "AVX2"  # oneDNN has no wider
        self.multiplies: float = FEW if self._tiles else math.inf if narrow else 0
        self._multiply = library.multiply
        self._multiply.argtypes, self._multiply.restype = [number] * 4 + [ctypes.c_int] + [pointer] * 4, None
        self._lay = library.lay
        self._lay.argtypes, self._lay.restype = [number] * 5 + [pointer] * 3, None
        self._round_int4 = library.round_int4
        self._round_int4.argtypes, self._round_int4.restype = [number] + [pointer] * 2, None
        self._prompts = library.prompts
        self._prompts.argtypes, self._prompts.restype = [number] * 7 + [pointer] * 7, None
        self._mix = library.mix
        self._mix.argtypes, self._mix.restype = [number] * 5 + [pointer] * 8, None
        self._norm, self._turn = library.norm, library.turn
        self._norm.argtypes = [number] * 3 + [ctypes.c_int] + [pointer] * 2 + [ctypes.c_float, pointer]
        self._turn.argtypes = [number] * 5 + [pointer] * 2
        self._route = library.route
        self._route.argtypes = [number] * 5 + [ctypes.c_float] + [pointer] * 6
        self._route.restype = self._norm.restype = self._turn.restype = None

    def attend(self, q_NHK: Tensor, keys_NTK: Tensor, seen_N: Tensor, rank: int) -> Tensor:
        """softmax(q k^T) k[:, :rank] of each row over its first `seen_N` places (int64, at least one); (N, H, rank).

        All in one piece; H a multiple of HEADS.
        """
        rows, heads, width = q_NHK.shape
        places = keys_NTK.shape[1]
        y_NHC = q_NHK.new_empty(rows, heads, rank)
        tiled = self._tiles and not (rank % 32 or width % 32 or places % 32)
        attend, block = (self._attend_tiles, TILE) if tiled else (self._attend, HEADS)
        room = block * (places + SPARE)

        def some(first: int, end: int) -> None:
            part = slice(first, end)
            z, p = torch.empty(room + tiled * 8 * width), torch.empty(room, dtype=self.dtype)
            tensors = (*(tensor[part] for tensor in (seen_N, q_NHK, keys_NTK, y_NHC)), z, p)
            pointers = (tensor.data_ptr() for tensor in tensors)
            attend(part.stop - part.start, heads, rank, width, places, *pointers)

        share(rows, rows, some)
        return y_NHC

    def multiply(self, x_NBI: Tensor, weights: Tensor, y_NBO: Tensor) -> Tensor:
        """y = x w^T for each of B weights of `packed`; faster than oneDNN up to `multiplies` rows.

        y may be float32 whatever x is: their last dimensions lie in one piece, the others as they like.
        """
        (rows, batch, ins), outs, wide = x_NBI.shape, y_NBO.shape[2], y_NBO.dtype == torch.float32
        by = (ctypes.c_int64 * 4)(x_NBI.stride(1), x_NBI.stride(0), y_NBO.stride(1), y_NBO.stride(0))
        at, x, y = ctypes.addressof(by), x_NBI.data_ptr(), y_NBO.data_ptr()
        by_x, by_y = by[1] * x_NBI.itemsize, by[3] * y_NBO.itemsize

        def some(first: int, end: int) -> None:
            pointers = (x + first * by_x, weights.data_ptr(), y + first * by_y)
            self._multiply(batch, end - first, outs, ins, wide, at, *pointers)

        share(rows, -(-rows // TILE), some)
        return y_NBO

    def packed(self, *parts_EOI: Tensor, seen: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Weights of experts, some behind others, as `mix` and `multiply` read them, (E, O / lanes, I / pair, lanes,
        pair); O is a multiple of TILE, I of 2.

        Args:
            seen: what is laid out of the first part. It is made a few experts at a time, so that it does not leave the
                core's caches in between.
        """
        lanes, pair = _LANES[self.dtype]
        outs, ins = parts_EOI[0].shape[1:]
        laid = torch.empty(sum(map(len, parts_EOI)), outs // lanes, ins // pair, lanes, pair, dtype=self.dtype)
        done = 0
        for part_EOI in parts_EOI:
            make, step = (seen, max(1, SOME // part_EOI[0].nbytes)) if seen and not done else (None, len(part_EOI))
            for some_EOI in part_EOI.detach().split(step):
                self._lay_out(make(some_EOI) if make else some_EOI, laid[done:])
                done += len(some_EOI)
        return laid

    def _lay_out(self, part_EOI: Tensor, to: Tensor) -> None:
        """Weights as `packed` lays them, to the beginning of `to`."""
        part = part_EOI if part_EOI.stride(2) == 1 else part_EOI.contiguous()
        by = (ctypes.c_int64 * 2)(*(step * part.itemsize for step in part.stride()[:2]))
        outs, (words, lanes), at = part.shape[1], to.shape[2:4], ctypes.addressof(by)

        def some(first: int, end: int) -> None:
            self._lay(first, end, outs, words, lanes, at, part.data_ptr(), to.data_ptr())

        share(len(part) * outs // 8, len(part) * outs // 8, some)

    def round_int4(self, weight_OI: Tensor) -> Tensor:
        """`model.quantize.round_to_int4` of float32 in one piece."""
        rounded_OI = torch.empty_like(weight_OI)
        groups, source, target = weight_OI.numel() // GROUP, weight_OI.data_ptr(), rounded_OI.data_ptr()

        def some(first: int, end: int) -> None:
            ahead = first * GROUP * weight_OI.itemsize
            self._round_int4(end - first, source + ahead, target + ahead)

        share(groups, max(1, groups // LEAST), some)
        return rounded_OI

    def prompts(self, q_PSHQ: Tensor, up_PSHO: Tensor, rotated_PSR: Tensor) -> Tensor:
        """Causal attention of P prompts of S tokens: softmax(q k^T) v, (P, S, H, V).

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
        room = HEADS * (length + SPARE)

        def some(first: int, end: int) -> None:
            part = slice(first, end)
            z, p = torch.empty(room), torch.empty(room + value, dtype=self.dtype)
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
            x_ND: in one piece.
            chosen_NK: K experts of each row, int64.
            weights_NK: their weights, float32.
            gate: of `packed`, as `up` and `down`.
        """
        rows, hidden = x_ND.shape
        experts, inner = len(gate), down.shape[2] * down.shape[4]
        out_ND = torch.zeros(rows, hidden)

        def some(first: int, end: int) -> None:
            part = slice(first, end)
            room = torch.empty(ROWS * inner, dtype=self.dtype)
            tensors = (chosen_NK[part], weights_NK[part], x_ND[part], gate, up, down, out_ND[part], room)
            pointers = (tensor.data_ptr() for tensor in tensors)
            self._mix(part.stop - part.start, chosen_NK.shape[1], experts, hidden, inner, *pointers)

        share(rows, rows, some)
        return out_ND

    def route(
        self, x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor, top: int, scaling: float, shared: int
    ) -> tuple[Tensor, Tensor]:
        """Experts (N, K + shared) and weights of each row: those of `moe.Router`, then the shared ones at weight 1.

        x_ND in one piece; the router's weight and bias float32; K = `top`, at most E.
        """
        rows, experts = len(x_ND), len(weight_ED)
        chosen_NK = torch.empty(rows, top + shared, dtype=torch.int64)
        weights_NK, scores_NE = torch.empty(rows, top + shared), torch.empty(rows, experts)
        tensors = (x_ND, weight_ED, bias_E, chosen_NK, weights_NK, scores_NE)
        sizes = (rows, experts, x_ND.shape[1], top, top + shared)
        self._route(*sizes, scaling, *(tensor.data_ptr() for tensor in tensors))
        return chosen_NK, weights_NK

    def norm(self, x_ND: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        """x / rms(x) * weight, (N, D), of x in `dtype` or float32 with columns side by side; weight float32."""
        rows, size = x_ND.shape
        y_ND = torch.empty(rows, size, dtype=self.dtype)
        wide = x_ND.dtype == torch.float32
        pointers = (x_ND.data_ptr(), weight_D.data_ptr())
        self._norm(rows, size, x_ND.stride(0), wide, *pointers, eps, y_ND.data_ptr())
        return y_ND

    def turn(self, x_NHR: Tensor, turn_NP: Tensor) -> None:
        """Turns neighbouring pairs of the last dimension in place; complex64 turns by row, in one piece."""
        rows, heads, rotated = x_NHR.shape
        by_row, by_head, _ = x_NHR.stride()
        self._turn(rows, heads, rotated // 2, by_row, by_head, x_NHR.data_ptr(), turn_NP.data_ptr())


def round_to_int4(weight_OI: Tensor) -> Tensor:
    """`model.quantize.round_to_int4`."""
    found = kernels(torch.float32)
    assert found is not None  # the table asked
    return found.round_int4(weight_OI.contiguous())


def _serves(dtype: torch.dtype) -> bool:
    """Whether this CPU has what `dtype` needs, and ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA do not hide it from
    torch."""
    capability = torch.backends.cpu.get_cpu_capability()
    if dtype == torch.float32:
        return capability in ("AVX2", "AVX512")  # with FMA: torch asks for both
    if capability != "AVX512" or not torch.backends.mkldnn.is_available():
        return False
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    try:
        return "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:  # no Linux
        return False


def _loaded(dtype: torch.dtype) -> ctypes.CDLL:
    """The library; one that cannot be loaded, as a full disk or a power cut leaves it, is built once more."""
    library = _built(dtype)
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        library.unlink(missing_ok=True)
        return ctypes.CDLL(str(_built(dtype)))


def _built(dtype: torch.dtype) -> Path:
    """The library, built where there is none of this source yet."""
    flags = ["-O3", "-std=c11", "-shared", "-fPIC", *(f"-m{one}" for one in _SETS[dtype])]
    if dtype == torch.bfloat16:
        flags.append("-DBFLOAT16")
    source = b"".join(path.read_bytes() for path in SOURCES)
    compiler = os.environ.get("CC", "").split() or ["cc"]
    name = f"decode-{hashlib.sha256(source + ' '.join(flags).encode()).hexdigest()[:16]}.so"
    folder = cache_folder()
    library = folder / name
    if not library.is_file():
        if shutil.which(compiler[0]) is None:
            raise FileNotFoundError("no C compiler; install gcc or clang, or name one in CC")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            half = Path(place) / name
            done = subprocess.run([*compiler, *flags, "-o", str(half), str(SOURCES[0])], capture_output=True)
            if done.returncode:
                said = done.stderr.decode(errors="replace").strip()[:200]  # in whatever its locale writes
                raise OSError(f"{compiler[0]} failed; name another compiler in CC: {said}")
            half.replace(library)  # whole or not at all, whoever builds beside us
    return library
