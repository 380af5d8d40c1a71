"""Random cases of the kernels under the sanitizers: ``python -m benchmarks.soak_kernel --cases 100000``.

AddressSanitizer and UndefinedBehaviorSanitizer watch every function of the library on random shapes, options and
numbers (tests/sanitize.cpp): ``make sanitize`` builds the program, which needs g++.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.soak_record import record

BUILD = Path(__file__).parent.parent / "build"


def main() -> int:
    """Run the program and keep what it says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--variant", choices=("portable", "avx2", "avx512"), default="avx2")
    parser.add_argument("--record", action="store_true", help="put a row into results/soak.csv")
    arguments = parser.parse_args()
    program = BUILD / f"sanitize_{arguments.variant}"
    if not program.exists():
        print(f"{program} is not there: run make sanitize first.")
        return 2
    # Threads that spin while they wait would take ten times as long.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([str(program), str(arguments.cases)], capture_output=True, text=True, env=environment)
    print(done.stdout + done.stderr, end="")
    if arguments.record:
        said = done.stdout.strip() if done.returncode == 0 else "stopped by a sanitizer"
        record("kernel cases under sanitizers", arguments.cases, int(done.returncode != 0), said, 0)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
