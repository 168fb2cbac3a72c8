"""Grammars of strangers' schemas, tried in a process of their own before the server reads them.

llguidance bounds most of what a grammar costs, and yet one integer in a schema can overflow its stack, which ends the
process and which nothing catches, and a few hundred patterns at once take it minutes. Here they end a process that
holds nothing, and the next grammar gets another.
"""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

LIMITS = LLParserLimits(
    initial_lexer_fuel=500_000,  # 10 ms by its own figures
    step_lexer_fuel=50_000,  # 4 ms
    step_max_items=20_000,
    max_lexer_states=50_000,  # of 1 to 2 kB
    max_grammar_size=100_000,
    verbose_errors=False,
)
SECONDS = 0.5
"""Of the processor, which a grammar may take with its first mask; ordinary ones take 2 to 20 ms."""
MEMORY = 4 << 30
"""Bytes of addresses that the process may have."""
KNOWN = 1000
"""Grammars that need no second trial."""


def matcher(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """The matcher of a grammar in Lark's form; it holds its error, where there is one."""
    return LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0, limits=LIMITS)


class Trial:
    """The process and what it has passed; any thread may ask."""

    def __init__(self, tokenizer: str, vocabulary: int, eos: int) -> None:
        self._head = json.dumps([tokenizer, vocabulary, eos])
        self._lock, self._known = threading.Lock(), dict[bytes, None]()
        self._process: subprocess.Popen[str] | None = None

    def passes(self, grammar: str) -> bool:
        """Whether reading the grammar ends, and in time. Raises RuntimeError where no process can be had."""
        key = hashlib.sha256(grammar.encode()).digest()
        with self._lock:
            if key in self._known:
                return True
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._process = self._begun()
            if not _answers(self._process, json.dumps(grammar)):
                self.close()
                return False
            self._known[key] = None
            if len(self._known) > KNOWN:
                del self._known[next(iter(self._known))]
            return True

    def close(self) -> None:
        """End the process; one that is needed later is begun then."""
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):  # what it had not read yet
                self._process.communicate()
            self._process = None

    def _begun(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__],  # imports nothing of a folder that it is started in
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # a Ctrl-C is for the server
        )
        if not _answers(process, self._head):
            process.kill()
            process.communicate()
            raise RuntimeError("the process in which grammars are tried did not start")
        return process


def _answers(process: subprocess.Popen[str], line: str) -> bool:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    except OSError:
        return False
    return process.stdout.readline() == "\n"


def _try() -> None:
    """Read grammars, a line each, and answer each by an empty line; a timer of the processor's time ends the process.

    In a thread, because the server reads them in threads: their stacks may be smaller than a process's first.
    """
    tokenizer, vocabulary, eos = json.loads(sys.stdin.readline())
    made = LLTokenizer(tokenizer, n_vocab=vocabulary, eos_token=eos)
    _pass()
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        tried = matcher(made, json.loads(line))
        if not tried.is_error():
            tried.compute_logit_bias()
        signal.setitimer(signal.ITIMER_PROF, 0)
        _pass()


def _pass() -> None:
    sys.stdout.write("\n")
    sys.stdout.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    thread = threading.Thread(target=_try)
    thread.start()
    thread.join()
