"""What a forward keeps, counted by storages."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Births(TorchDispatchMode):
    """Remembers every storage that an operation makes, without holding it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._see((args, kwargs), made=False)
        result = func(*args, **(kwargs or {}))
        self._see(result, made=True)
        return result

    def _see(self, tree: Any, made: bool) -> None:
        for leaf in tree_leaves(tree):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                self.seen.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes() if made else 0))


def bytes_kept(forward: Callable[[], Any]) -> int:
    """Bytes of memory that `forward` made and that live on after it: what its result holds for a backward.

    Counted by storages, so exact; the result itself is in it.
    """
    with _Births() as births:
        result = forward()
    alive = sum(size for storage, size in births.seen.values() if not storage.expired())
    del result
    return alive
