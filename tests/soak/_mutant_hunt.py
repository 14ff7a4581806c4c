"""Simulates seed after seed, each profile in turn, until a promise is broken; says where. Run on a mutant's source.

Usage: _mutant_hunt.py SECONDS. Exit code 0: nothing was found in that time; 3: something was.
"""

from __future__ import annotations

import itertools
import sys
import time

__all__ = ["FOUND"]

FOUND = 3


def main() -> int:
    # Here, so that the process which breaks the library can import this module without it.
    from singletonjob.testing import PROFILES, Simulation, Violation

    until = time.monotonic() + float(sys.argv[1])
    for seed in itertools.count():
        for profile in PROFILES:
            if time.monotonic() > until:
                return 0
            try:
                Simulation(seed, faults=profile).run()
            except Violation as violation:
                sys.stdout.write(f"simulation, profile {profile}, seed {seed}, rule {violation.rule}\n")
                return FOUND
            except Exception as error:
                sys.stdout.write(f"simulation, profile {profile}, seed {seed}, {error!r:.80}\n")
                return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main())
