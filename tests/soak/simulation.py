"""Many seeds of the deterministic simulation, over all fault profiles: every promise is kept in each.

`--seeds N` in all; `--from N` begins with another seed, `--profile NAME` takes one profile only, `--processes N` says
how many at once.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice
from typing import NamedTuple

from simulation.fleet import Simulation
from simulation.sim_checker import Violation
from simulation.sim_faults import PROFILES
from soak._evidence import arguments, conclude, say

SHOWN = 3
"""So many violations are shown in full."""

LEAST = {"replicas": 3, "jobs": 2, "lock_expiries": 20, "faults": 5, "terms": 3}
"""What a seed has at least, on average."""

AS_OTHERS = {"stop_all"}
"""Kinds of fault that are counted as those that they consist of."""

ENOUGH = 50
"""From so many seeds of each profile on, every kind of fault has happened."""


class Told(NamedTuple):
    """What one simulation had; `violation` is its text, `rule` which one."""

    sizes: Counter[str]
    faults: Counter[str]
    rule: str = ""
    violation: str = ""


def simulate(seed: int, profile: str) -> Told:
    simulation, rule, violation = Simulation(seed, faults=profile), "", ""
    try:
        simulation.run()
    except Violation as error:
        rule, violation = f"{error.rule} in {profile}", str(error)
    history = simulation.history
    sizes = Counter(
        replicas=simulation.replicas,
        jobs=simulation.jobs,
        lock_expiries=round(simulation.length),
        runs=len(history.runs),
        sync_runs=sum(run.sync for run in history.runs),
        late_begins=sum(run.woke is not None for run in history.runs),
        terms=len(history.leases),
        faults=len(history.faults),
    )
    return Told(sizes, history.counts, rule, violation)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--profile", choices=PROFILES)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    profiles = [options.profile] if options.profile else list(PROFILES)
    seeds = (options.first + number // len(profiles) for number in range(options.seeds))
    sizes, faults, violations = Counter[str](), Counter[str](), Counter[str]()
    begun = told = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        results = pool.map(simulate, seeds, islice(cycle(profiles), options.seeds), chunksize=len(profiles))
        for done, result in enumerate(results):
            sizes, faults = sizes + result.sizes, faults + result.faults
            if result.rule:
                violations[result.rule] += 1
                if violations.total() <= SHOWN:
                    say(result.violation)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                say(f"{done + 1} of {options.seeds} seeds, {violations.total()} violations")
    count, seconds = max(options.seeds, 1), time.monotonic() - begun
    means = {what: total / count for what, total in sizes.items()}
    small = [what for what, least in LEAST.items() if means.get(what, 0.0) < least]
    kinds = {kind for name in profiles for kind in PROFILES[name].faults} - AS_OTHERS
    never = sorted(kinds - {*faults}) if options.seeds >= ENOUGH * len(profiles) else []
    conclude(
        "simulation",
        [
            f"{options.seeds} simulations of {len(profiles)} profiles, from seed {options.first} on",
            "a seed has, on average: "
            + ", ".join(f"{mean:.1f} {what.replace('_', ' ')}" for what, mean in means.items()),
            "faults by kind: " + ", ".join(f"{kind} {number}" for kind, number in faults.most_common()),
            f"{options.seeds / seconds:.1f} seeds per second, in {options.processes} processes",
            *([f"too few, on average: {', '.join(small)}"] if small else []),
            *([f"never happened: {', '.join(never)}"] if never else []),
            "violations: " + (", ".join(f"{number} of {rule}" for rule, number in violations.items()) or "none"),
        ],
        good=not violations and not small and not never,
        record=options.record,
    )


if __name__ == "__main__":
    main()
