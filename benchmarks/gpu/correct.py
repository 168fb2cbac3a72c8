"""1. The tests marked `gpu`: every operation, the network, MuonClip, a run and its checkpoints beside the CPU's."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET  # of a file that pytest has just written here

from benchmarks.gpu.common import HOUSE, Bench

TESTS = ("tests/model/kernels/test_gpu.py", "tests/model/test_memory.py", "tests/training/test_gpu.py")


def main() -> int:
    bench = Bench.begin("correct", __doc__)

    def tests() -> dict[str, object]:
        report = bench.out / "correct.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "gpu",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            *TESTS,
        ]
        subprocess.run(command, cwd=HOUSE, check=False)
        cases = list(ET.parse(report).iter("testcase"))

        def names(kind: str) -> list[str]:
            return [str(case.get("name")) for case in cases if case.find(kind) is not None]

        bad = names("failure") + names("error")
        found = {"tests": len(cases), "skipped": len(names("skipped")), "wrong": bad}
        return found | ({"failed": f"{len(bad)} tests"} if bad or not cases else {})

    bench.part("tests", tests)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
