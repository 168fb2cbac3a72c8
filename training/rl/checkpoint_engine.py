"""Weights from the ranks that train into vLLM's workers on the same GPUs, by Moonshot's library checkpoint-engine
(0.4.2; K2 report 3.3): no file is written.

Every rank copies its part of the weights to pinned memory of its host. The parts then pass in buckets, one owner after
another, by broadcast to all ranks; each rank shares its bucket's memory with the worker on its GPU and tells it over a
socket what lies where. vLLM runs with `--worker-extension-cls checkpoint_engine.worker.VllmColocateWorkerExtension`.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from torch import Tensor

from model.convert import served_dtype, to_hf_state
from model.transformer import Transformer
from training.parallel import World
from training.rl.config import RolloutsConfig
from training.rl.endpoint import Endpoint, EndpointError

T = TypeVar("T")
CHECKPOINT = "policy"
"""What the library calls these weights."""
REFUSAL_SECONDS = 5.0
"""In which a rank of this machine hears that no worker will come."""
TAKES = (
    "; rl.rollouts.sync 'checkpoint_engine' needs vLLM with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls "
    "checkpoint_engine.worker.VllmColocateWorkerExtension, on the GPUs that train; its log says more"
)


class ColocatedEndpoint(Endpoint):
    """Servers on the GPUs that train. Every rank makes one, and they all call `sync` together."""

    def __init__(self, config: RolloutsConfig, world: World, beat: Callable[[str], None] = lambda doing: None) -> None:
        """Raises `EndpointError` on every rank where the library is missing on one, or finds no GPU there."""
        super().__init__(config, world, beat)
        # other users reach the library's own addresses, and may take them first: nobody else enters this folder
        self._folder = tempfile.TemporaryDirectory(prefix="openk2-sync-", ignore_cleanup_errors=True)
        port = world.from_first(_free_port() if world.rank == 0 else 0)
        kind = self._together("is not there", lambda: _library(config.answer_seconds))
        self._server: Any = self._together("does not start", lambda: _started(kind, world, port))
        place = (self._server._device_uuid, str(Path(self._folder.name, "bucket")))
        self._server.places = dict(world.gather(place))

    def __exit__(self, *given: object) -> None:
        super().__exit__(*given)
        self._server = None  # and the pinned memory with it
        self._folder.cleanup()

    def hand_over(self, model: Transformer) -> None:
        """Of `model`, which every rank has whole, each gives its part.

        Raises:
            EndpointError: a rank could not give it, or a worker not take it.
        """
        server, refused = self._server, list[EndpointError]()

        def asked(addresses: list[tuple[str, str]]) -> None:
            # in a thread of the library, which lets an error of it pass and waits for workers that do not come
            try:
                if self.world.rank == 0:
                    self._ask_all(dict(addresses))
            except EndpointError as error:
                refused.append(error)
                server.refuse(address for _, address in addresses)

        def register() -> None:
            part = part_of(to_hf_state(model), self.world.rank, self.world.size)
            server.register_checkpoint(CHECKPOINT, named_tensors=part, use_shared_memory_pool=True)

        self._together("does not take the weights", register)
        try:
            server.gather_metas(CHECKPOINT)
            server.update(CHECKPOINT, asked, timeout=timedelta(seconds=self.config.answer_seconds))
        except Exception as error:  # the library's own checks, torch's, the sockets': they have no type in common
            if not refused:
                raise EndpointError(
                    f"rank {self.world.rank}: a worker of vLLM on its GPU did not take the weights, each bucket within "
                    f"rl.rollouts.answer_seconds = {self.config.answer_seconds:g} ({type(error).__name__} {error}): "
                    f"see that it runs as this user and sees {self._folder.name}, and start it again{TAKES}"
                ) from error
        finally:
            server.unregister_checkpoint(CHECKPOINT)  # its pinned memory stays for the next weights
        if refused:
            raise refused[0]

    def _ask_all(self, addresses: dict[str, str]) -> None:
        """Have the workers of all servers take the weights, all at a time: every rank waits for its own."""
        body = {"method": "update_weights_from_ipc", "args": [addresses], "timeout": self.config.answer_seconds}
        asked = [self.pool.submit(self.post, url, "collective_rpc", body, TAKES, 1) for url in self.urls]
        done, _ = wait(asked, return_when=FIRST_EXCEPTION)
        for one in done:
            one.result()

    def _together(self, what: str, work: Callable[[], T]) -> T:
        """`work()`; where it fails on one rank, all raise, and none waits for that one."""
        found, trouble = None, ""
        try:
            found = work()
        except Exception as error:  # of the library, which raises all kinds
            trouble = f"{type(error).__name__} {error}".strip()
        told = self.world.gather(trouble)
        for rank, each in enumerate(told):
            if each:
                raise EndpointError(
                    f"checkpoint_engine {what} on rank {rank} ({each}): rl.rollouts.sync 'checkpoint_engine' needs "
                    "`pip install 'openk2[colocate]'`, a GPU for each rank and room for its part of the weights in the "
                    "host's memory; 'files' needs none of them"
                )
        return cast(T, found)


def _library(seconds: float) -> Any:
    """The library's class of servers, which are to wait at most `seconds` for a worker."""
    os.environ.setdefault("LOGURU_LEVEL", "WARNING")  # read by the import below: every bucket would be a line
    import zmq
    from checkpoint_engine.ps import ParameterServer

    class Server(ParameterServer):
        """With addresses in folders of this user alone, and an end to every wait."""

        _zmq_addr_counter: int
        places: Mapping[str, str]
        """Beginnings of paths, by the identifier of a rank's GPU."""

        def _bind_zmq_socket(self) -> tuple[Any, list[tuple[str, str]]]:
            count, self._zmq_addr_counter = self._zmq_addr_counter, self._zmq_addr_counter + 1
            addresses = {uuid: f"ipc://{self.places[uuid]}-{count}" for uuid in self._global_device_uuids}
            bound = self._socket(zmq.REQ, seconds)
            bound.bind(addresses[self._device_uuid])
            return bound, list(addresses.items())

        def refuse(self, addresses: Iterable[str]) -> None:
            """Answer in the place of workers that do not come, so that each rank ends as after an error of its own."""
            with ExitStack() as stack:
                workers = []
                for address in addresses:
                    workers.append(stack.enter_context(self._socket(zmq.REP, REFUSAL_SECONDS)))
                    workers[-1].connect(address)
                # all are told before any is heard again: ranks wait for each other before they go on
                for step in ("begins", "ends"):
                    for worker in list(workers):
                        try:
                            worker.recv()  # where the bucket's memory is; then that all ranks know
                            if step == "begins":
                                worker.send_string("a server did not take the request")
                        except zmq.Again:  # its worker did come, or it is on another machine
                            workers.remove(worker)

        def _socket(self, kind: int, seconds: float) -> Any:
            made = self._zmq_ctx.socket(kind)
            made.rcvtimeo = made.sndtimeo = round(seconds * 1000)
            made.linger = 0
            return made

    return Server


def _started(kind: Any, world: World, port: int) -> Any:
    """The library's server of this rank; it waits ten minutes for those of the others."""
    os.environ.setdefault("RANK", "0")  # there it looks where it is given rank 0
    return kind(
        rank=world.rank,
        world_size=world.size,
        auto_pg=world.size == 1,  # otherwise it would end the process group that trains
        master_addr=os.environ.get("MASTER_ADDR", "127.0.0.1"),
        master_port=port,
    )


def part_of(state: Mapping[str, Tensor], rank: int, ranks: int) -> dict[str, Tensor]:
    """Tensors of a checkpoint that `rank` of `ranks` sends, as `save_hf` writes them, on the CPU: each is sent by one
    rank, and all send about as many bytes."""
    part: dict[str, Tensor] = {}
    filled = [0] * ranks
    for name, tensor in state.items():
        dtype = served_dtype(name)
        sender = filled.index(min(filled))
        filled[sender] += tensor.numel() * dtype.itemsize
        if sender == rank:
            part[name] = tensor.detach().to("cpu", dtype).contiguous()
    return part


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
