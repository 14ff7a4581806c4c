"""Many seeds of the deterministic simulation, over all fault profiles: every promise is kept in each.

`--seeds N` in all; `--from N` begins with another seed, `--profile NAME` takes one profile only.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import cycle, islice

from singletonjob.testing import PROFILES, Simulation, Violation
from soak._evidence import arguments, conclude, say

SHOWN = 3
"""So many violations are shown in full."""


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--profile", choices=PROFILES)
    options = parser.parse_args()
    profiles = [options.profile] if options.profile else list(PROFILES)
    runs = terms = 0
    faults, violations = Counter[str](), Counter[str]()
    begun = told = time.monotonic()
    for done, profile in enumerate(islice(cycle(profiles), options.seeds)):
        simulation = Simulation(options.first + done // len(profiles), faults=profile)
        try:
            simulation.run()
        except Violation as violation:
            violations[f"{violation.rule} in {profile}"] += 1
            if violations.total() <= SHOWN:
                say(str(violation))
        history = simulation.history
        runs, terms, faults = runs + len(history.runs), terms + len(history.leases), faults + history.counts
        if time.monotonic() - told > 10:
            told = time.monotonic()
            say(f"{done + 1} of {options.seeds} seeds, {violations.total()} violations")
    count, seconds = max(options.seeds, 1), time.monotonic() - begun
    by_kind = ", ".join(f"{kind} {number / count:.2f}" for kind, number in faults.most_common())
    conclude(
        "simulation",
        [
            f"{options.seeds} simulations of {len(profiles)} profiles, from seed {options.first} on",
            "each of 3 replicas and 2 jobs, for 20 lock_expiries",
            f"a seed has {runs / count:.1f} runs, {terms / count:.1f} terms and {faults.total() / count:.1f} faults",
            f"faults by kind: {by_kind}",
            f"{options.seeds / seconds:.1f} seeds per second",
            "violations: " + (", ".join(f"{number} of {rule}" for rule, number in violations.items()) or "none"),
        ],
        good=not violations,
        record=options.record,
    )


if __name__ == "__main__":
    main()
