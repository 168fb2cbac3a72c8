"""Grammars of strangers' schemas, tried in a process of their own before the server reads them.

llguidance bounds most of what a grammar costs, and yet one integer in a schema can overflow its stack, which ends the
process and which nothing catches, and a few hundred patterns at once take it minutes. Here they end a process that
holds nothing: a copy of one that has read the vocabulary, which for K2's takes two seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

LIMITS = LLParserLimits(
    initial_lexer_fuel=500_000,  # 10 ms by its own figures
    step_lexer_fuel=50_000,  # 4 ms
    step_max_items=20_000,
    max_lexer_states=50_000,  # of 1 to 2 kB
    max_grammar_size=100_000,
    verbose_errors=False,
)
SECONDS = 2.0
"""Of the processor, which a grammar may take with its first mask. With K2's vocabulary ordinary ones take 2 to 10 ms,
60 tools 60 and the longest schemas 170; a processor may be several times slower."""
MEMORY = 4 << 30
"""Bytes of addresses that the process may have."""
KNOWN = 1000
"""Grammars that need no second trial."""
PASSED, ENDED = "\n", "ended\n"
"""What the process answers: the grammar was read, or it ended the copy that read it."""


def matcher(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """The matcher of a grammar in Lark's form; it holds its error, where there is one."""
    return LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0, limits=LIMITS)


class Untried(Exception):
    """A grammar that has to be tried first."""

    def __init__(self, grammar: str) -> None:
        super().__init__("the grammar has not been tried")
        self.grammar = grammar


class Trial:
    """The process and what it has passed; any thread may ask."""

    def __init__(self, tokenizer: str, vocabulary: int, eos: int) -> None:
        self._head = json.dumps([tokenizer, vocabulary, eos, SECONDS])
        self._lock, self._known = threading.Lock(), dict[bytes, bool]()
        self._process: subprocess.Popen[str] | None = None

    def passed(self, grammar: str) -> bool:
        """Whether reading the grammar ends, and in time. Raises Untried: nobody waits here."""
        key = _key(grammar)
        passed = self._known.get(key)
        if passed is None:
            raise Untried(grammar)
        if not passed:  # is told once: the next time it may have the time
            self._known.pop(key, None)
        return passed

    def run(self, grammar: str) -> None:
        """Find out; `passed` knows then. Raises RuntimeError where there is no process to try it."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._process = self._begun()
            answer = _answer(self._process, json.dumps(grammar))
            if answer not in (PASSED, ENDED):
                raise RuntimeError("the process in which grammars are tried has ended")
            self._known[_key(grammar)] = answer == PASSED
            if len(self._known) > KNOWN:
                del self._known[next(iter(self._known))]

    def close(self) -> None:
        """End the process; one that is needed later is begun then."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # and a copy of it at work
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
        if _answer(process, self._head) != PASSED:
            process.kill()
            process.communicate()
            raise RuntimeError("the process in which grammars are tried did not start")
        return process


def _key(grammar: str) -> bytes:
    return hashlib.sha256(grammar.encode()).digest()


def _answer(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(OSError):  # it has ended, and answers nothing
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return process.stdout.readline()


def _serve() -> None:
    """Try grammars, a line each, and say of each what became of it."""
    tokenizer, vocabulary, eos, seconds = json.loads(sys.stdin.readline())
    made = LLTokenizer(tokenizer, n_vocab=vocabulary, eos_token=eos)
    _say(PASSED)
    for line in sys.stdin:
        if copy := os.fork():
            _, status = os.waitpid(copy, 0)
            _say(ENDED if status else PASSED)
        else:
            _try(made, json.loads(line), seconds)


def _try(tokenizer: LLTokenizer, grammar: str, seconds: float) -> NoReturn:
    """Read a grammar and end this process, well if nothing else ended it: after so many seconds of the processor a
    timer does.

    In a thread, because the server reads grammars in threads: their stacks may be smaller than a process's first.
    """
    read = False

    def reads() -> None:
        nonlocal read
        tried = matcher(tokenizer, grammar)
        if not tried.is_error():
            tried.compute_logit_bias()
        del tried  # which may go deep, too
        read = True

    signal.setitimer(signal.ITIMER_PROF, seconds)
    thread = threading.Thread(target=reads)
    thread.start()
    thread.join()
    os._exit(not read)


def _say(answer: str) -> None:
    sys.stdout.write(answer)
    sys.stdout.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _serve()
