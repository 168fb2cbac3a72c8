"""The ways in which a source says that it cannot be had."""


class UnavailableError(RuntimeError):
    """A source that cannot be had here and now; the sentence says what was looked for and where."""


class OutageError(Exception):
    """A store, a network or a disk that fails while a source is listed or read. It may work in a while: the task is
    tried again, and nothing is taken for lost.

    No OSError: decompressors raise that over damaged bytes, and whoever reads goes on without what is damaged.
    """
