"""The process that compares mathematics: a question a line on stdin, its verdict a line on stdout. Imports nothing of
ours, so that it starts by its path alone.

Only math-verify's reader of LaTeX is used, whose grammar is closed; its reader of plain expressions ends in `eval`.
"""

from __future__ import annotations

import json
import os
import resource
import sys


def main() -> None:
    limit = int(sys.argv[1]) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    seconds, hard = int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_CPU)[1]
    # What a library prints must not end up among the verdicts.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        import sympy
        from math_verify import LatexExtractionConfig, parse, verify
    except ImportError as error:
        sys.stdin.readline()
        print(json.dumps({"equal": False, "reason": str(error)}), file=out, flush=True)
        return
    reader = [LatexExtractionConfig(boxed_match_priority=0)]
    undone = (sympy.Derivative, sympy.Integral, sympy.Limit, sympy.Product, sympy.Sum)

    def read(text):  # type: ignore[no-untyped-def]
        return parse(f"${text}$", reader, "no_fallback", "first_match", None)

    def told(expression):  # type: ignore[no-untyped-def]
        """What an answer gives: of `x = 3`, and of each of `x = 1, x = 2`, what stands on the right."""
        if isinstance(expression, sympy.FiniteSet):
            return [value for one in expression.args for value in told(one)]
        return [expression.rhs if isinstance(expression, sympy.Eq) else expression]

    def work(expression):  # type: ignore[no-untyped-def]
        """Operations that are left to do."""
        return sum(sympy.count_ops(value) for value in told(expression))  # a matrix has no `count_ops` of its own

    def judged(gold, answer):  # type: ignore[no-untyped-def]
        wanted, found = read(gold), read(answer)
        if not wanted:
            return False, "the gold answer cannot be read"
        # never `sympify` what was found: of a text it makes an expression by `eval`
        if not found or not isinstance(found[0], (sympy.Basic, sympy.MatrixBase)):
            return False, "no answer that can be read"
        # The question itself equals its answer: what is left to be worked out is no answer.
        spare = 2 if getattr(wanted[0], "free_symbols", ()) else 0
        # The reader has worked out what \gcd and \lcm stand for, and says so by this class, as it does of per cent.
        left = undone if wanted[0].has(sympy.UnevaluatedExpr) else (*undone, sympy.UnevaluatedExpr)
        if any(value.has(*left) for value in told(found[0])) or work(found[0]) > work(wanted[0]) + spare:
            return False, "not worked out"
        return bool(verify(wanted, found, timeout_seconds=None)), "another answer"

    def chained(gold, answer):  # type: ignore[no-untyped-def]
        """`x = 6/2 = 3`: the last side is the answer, and all but a first one with letters are equal to it."""
        first, *between, last = answer.split("=")
        return begins(gold, first) and all(equal(gold, side) for side in between) and judged(gold, last)[0]

    def stepped(gold, answer):  # type: ignore[no-untyped-def]
        """`4x = -7, x = -7/4`: the last equation names the answer, and those before it hold of that."""
        *steps, last = answer.split(",")
        wanted, named = read(gold), read(last)
        if not steps or not wanted or not named or not isinstance(named[0], sympy.Eq):
            return False
        name = named[0].lhs
        if not isinstance(name, sympy.Symbol) or not isinstance(wanted[0], sympy.Expr) or wanted[0].free_symbols:
            return False
        for step in steps:
            found = read(step)
            if not found or not isinstance(found[0], sympy.Eq) or found[0].free_symbols != {name}:
                return False
            if sympy.simplify((found[0].lhs - found[0].rhs).subs(name, wanted[0])) != 0:
                return False
        return judged(gold, last)[0]

    def bracketed(gold, answer):  # type: ignore[no-untyped-def]
        """`(-2, 3)`, a point or an interval, where a set is asked for: the reader takes it for the set of both."""
        inner = answer.replace("\\left", "").replace("\\right", "").strip()
        wanted = read(gold)
        if not wanted or not isinstance(wanted[0], sympy.FiniteSet) or "," not in inner:
            return False
        return inner.startswith("(") and inner.find(")") == len(inner) - 1

    def begins(gold, first):  # type: ignore[no-untyped-def]
        """Whether what stands before the first sign is a name, or no other value: `6 = 12` says nothing true."""
        begun = read(first)
        if not begun:
            return True
        return isinstance(begun[0], sympy.Expr) and (bool(begun[0].free_symbols) or equal(gold, first))

    def equal(gold, side):  # type: ignore[no-untyped-def]
        return bool(verify(read(gold), read(side), timeout_seconds=None))

    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, hard))
        question = json.loads(line)
        try:
            right, reason = judged(question["gold"], question["answer"])
            if right and bracketed(question["gold"], question["answer"]):
                right, reason = False, "a point or an interval, where a set is asked for"
            elif right and question["answer"].count("=") == 1:
                right = begins(question["gold"], question["answer"].partition("=")[0])
            elif not right and question["answer"].count("=") > 1:
                right = chained(question["gold"], question["answer"]) or stepped(question["gold"], question["answer"])
        except (Exception, RecursionError) as error:  # whatever a text makes of a parser is a wrong answer
            right, reason = False, f"no answer that can be read ({type(error).__name__})"
        print(json.dumps({"equal": right, "reason": "" if right else reason}), file=out, flush=True)


if __name__ == "__main__":
    main()
