"""Simulates seed after seed, each profile in turn, until a promise is broken; says where. Run on a mutant's source.

Usage: _mutant_hunt.py SECONDS. Exit code 0: nothing was found in that time; 3: something was; 4: the mutant itself is
broken.
"""

from __future__ import annotations

import itertools
import sys
import time

from soak._mutant_faults import fault

__all__ = ["FAULTY", "FOUND"]

FOUND, FAULTY = 3, 4


def main() -> int:
    # Here, so that the process which breaks the library can import this module without it.
    from simulation.fleet import Simulation
    from simulation.sim_checker import Violation
    from simulation.sim_faults import PROFILES

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
                if (found := fault(error)) is not None:
                    sys.stdout.write(f"{found}, in the simulation, profile {profile}, seed {seed}\n")
                    return FAULTY
                sys.stdout.write(f"simulation, profile {profile}, seed {seed}, {error!r:.80}\n")
                return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main())
