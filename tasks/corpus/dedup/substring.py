"""Fingerprints of runs of tokens, chosen by winnowing (Schleimer, Wilkerson and Aiken 2003).

Of every `window` runs of `tokens` tokens that follow each other the one of the smallest hash is kept, the last of
equals. What is kept depends on the words of a window alone, so that two texts that share `tokens + window - 1` tokens
in a row share a fingerprint in them, wherever it stands.
"""

from __future__ import annotations

import numpy as np

from model.compiled import compiled
from tasks.corpus.codepoints import Tokens, rolling
from tasks.corpus.dedup.config import SubstringConfig
from tasks.corpus.dedup.passages import Fingerprints


def fingerprints(tokens: Tokens, wanted: np.ndarray, config: SubstringConfig) -> Fingerprints:
    """The fingerprints of a batch, of the documents that are wanted (bool [N]), each with the run that it is of."""
    windows, starts = rolling(tokens.hashes, tokens.starts, config.tokens)
    chosen = np.empty(len(windows), np.int64)
    documents = np.empty(len(windows), np.int64)
    count = _winnow(windows, starts, wanted, config.window, chosen, documents)
    chosen, documents = chosen[:count], documents[:count]
    first = chosen - starts[documents] + tokens.starts[documents]
    return Fingerprints(windows[chosen], documents, tokens.begins[first], tokens.ends[first + config.tokens - 1])


@compiled
def _winnow(windows, starts, wanted, size, chosen, documents):  # type: ignore[no-untyped-def]
    """A queue of rising hashes: its head is the smallest of the last `size`."""
    count = 0
    queue = np.empty(size + 1, np.int64)
    for document in range(len(starts) - 1):
        if not wanted[document]:
            continue
        head, held, last = 0, 0, -1
        first, stop = starts[document], starts[document + 1]
        for at in range(first, stop):
            while held and windows[queue[(head + held - 1) % (size + 1)]] >= windows[at]:
                held -= 1
            queue[(head + held) % (size + 1)] = at
            held += 1
            if queue[head] <= at - size:
                head = (head + 1) % (size + 1)
                held -= 1
            # A text of fewer runs than a window is one window.
            if (at - first >= size - 1 or at == stop - 1) and queue[head] != last:
                last = queue[head]
                chosen[count], documents[count] = last, document
                count += 1
    return count
