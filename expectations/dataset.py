"""What a gate needs of the thing it judges: a few read-only properties, and nothing of how data are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Part(Protocol):
    """One file of a dataset."""

    @property
    def key(self) -> str:
        """Its name within the dataset; `/` groups parts."""

    @property
    def path(self) -> str:
        """Where it lies, relative to the dataset's uri."""

    @property
    def rows(self) -> int:
        """The rows that its record states."""


class Dataset(Protocol):
    """A published dataset: its parts, and what its maker says of it."""

    @property
    def name(self) -> str: ...

    @property
    def uri(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def statistics(self) -> Mapping[str, Any]: ...

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The record that makes it real; `config` holds the literals that it was made with."""

    def parts(self, group: str = "") -> Sequence[Part]:
        """The parts of a group, in the order of their keys."""

    def files(self, group: str = "") -> list[Path]:
        """Local paths of those parts, in the same order, each checked against its hash."""


D_co = TypeVar("D_co", bound=Dataset, covariant=True)
D = TypeVar("D", bound=Dataset)


class Step(Protocol[D_co]):
    """A step of the recipe, published or not: what is judged, and the judging itself."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> Any: ...

    @property
    def uri(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def inputs(self) -> Sequence[Step[D_co]]: ...

    def artifact(self) -> D_co | None:
        """What has been published, or None."""

    def require(self) -> D_co:
        """What has been published; raises, saying what to run, where nothing has."""

    def put(self, key: str, suffix: str, write: Callable[[Path], object]) -> Part:
        """Write one part."""

    def publish(self, statistics: Mapping[str, Any], keys: Iterable[str]) -> D_co:
        """Make the parts `keys` real."""


def keyed(dataset: Dataset, group: str) -> Iterator[tuple[str, Path]]:
    """(key, local path) of every part of a group."""
    for part, path in zip(dataset.parts(group), dataset.files(group), strict=True):
        yield part.key, path
