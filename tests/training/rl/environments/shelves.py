"""A task set with tools of the library `verifiers`, for test_library.py: it is read by the library, under its
interpreter."""

from __future__ import annotations

from typing import Literal

import verifiers.v1 as vf


class Shelves(vf.State):
    left: int = -1


class ShelfData(vf.TaskData):
    books: int
    answer: str
    steps: list[dict]


class ShelfConfig(vf.ToolsetConfig):
    broken: bool = False


class Shelf(vf.Toolset[ShelfConfig, Shelves]):
    async def setup(self) -> None:
        if self.config.broken:
            raise RuntimeError("no shelf")

    async def setup_task(self, task: ShelfData) -> None:
        self.books = task.books

    def _left(self) -> int:
        return self.books if self.state.left < 0 else self.state.left

    @vf.tool
    async def count(self, shelf: str) -> int:
        """How many books stand on the left or the right shelf."""
        return self._left() if shelf == "left" else self.books - self._left()

    @vf.tool
    def move(self, number: int) -> str:
        """Move books from the left shelf to the right one."""
        if number > self._left():
            raise ValueError(f"only {self._left()} are there")
        self.state.left = self._left() - number
        return "moved"

    @vf.tool
    def read_sign(self) -> str:
        """What is written above the shelf."""
        return f"{self.books} books"


class TaskConfig(vf.TaskConfig):
    tools: ShelfConfig = ShelfConfig()


class OfShelf:
    """Right is the last reply, however it was found."""

    @classmethod
    def toolsets(cls, config: TaskConfig) -> list[vf.Toolset]:
        return [Shelf(config.tools)]

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)


class Counted(OfShelf, vf.Task[ShelfData, Shelves, TaskConfig]):
    pass


class Moved(Counted):
    """Right is what stands there in the end."""

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.state.left == 1 and trace.last_reply == self.data.answer)


class Stateless(OfShelf, vf.Task[ShelfData, vf.State, TaskConfig]):
    pass


class SetConfig(vf.TasksetConfig):
    kind: Literal["counted", "moved", "elsewhere", "contained", "stateless", "broken"] = "counted"
    task: TaskConfig = TaskConfig()


class Set(vf.Taskset[Counted, SetConfig]):
    def load(self) -> list:
        tools = {
            "elsewhere": {"url": "http://127.0.0.1:9/mcp"},
            "contained": {"runtime": vf.DockerConfig()},
            "broken": {"broken": True},
        }.get(self.config.kind, {})
        config = TaskConfig(tools=ShelfConfig(**tools))
        kind = {"moved": Moved, "stateless": Stateless}.get(self.config.kind, Counted)
        found = []
        for books in range(2, 14):
            steps = [
                {"name": "shelf_move", "arguments": {"number": part}} for part in (books - 1 - books // 2, books // 2)
            ]
            prompt = f"Leave one book on shelf {books} and say how many there were."
            data = ShelfData(prompt=prompt, books=books, answer=str(books), steps=steps)
            found.append(kind(data, config))
        return found


__all__ = ["Set"]
