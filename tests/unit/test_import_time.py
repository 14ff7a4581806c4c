"""What `import singletonjob` costs, beside what `import asyncio` costs on the same machine at the same moment."""

from __future__ import annotations

import compileall
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
ROUNDS = 15

# Each child takes both times, one right after the other, so that a slow moment of the machine slows both.
MEASURE = f"""
import sys
from time import perf_counter
sys.path.insert(0, {str(SRC)!r})
start = perf_counter()
import asyncio
between = perf_counter()
import singletonjob
print(between - start, perf_counter() - between)
singletonjob.SingletonJobs
"""


def one_round() -> tuple[float, float]:
    # -I ignores the environment: with PYTHONDONTWRITEBYTECODE or PYTHONPATH another thing would be measured.
    done = subprocess.run([sys.executable, "-I", "-c", MEASURE], check=True, capture_output=True, text=True)
    first, second = done.stdout.split()
    return float(first), float(second)


def test_importing_singletonjob_adds_less_than_40_percent_of_what_importing_asyncio_takes() -> None:
    assert compileall.compile_dir(SRC, quiet=1)
    one_round()  # fills the file cache and the standard library's bytecode, where that is not there yet

    rounds = [one_round() for _ in range(ROUNDS)]

    # Noise only ever adds, so the smallest of many rounds is nearest to the work itself.
    asyncio_takes = min(first for first, _ in rounds)
    ours_adds = min(second for _, second in rounds)
    assert ours_adds < 0.4 * asyncio_takes, f"{ours_adds * 1000:.1f} ms on top of {asyncio_takes * 1000:.1f} ms"
