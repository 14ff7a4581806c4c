"""Real worker processes on one store, all kinds of things done to them and to it, and what their bodies saw of it.

Rounds of half a minute, each with other settings: `--minutes N` of them on each store (`--store redis|sqlite|both`),
from `--seed S` on. Nothing may overlap but what the design exempts: the run that a process was frozen in, and a sync
body whose term was lost. Where a running server loses a lease, a replica that had been following waits; the overlaps
with one that had not are counted and bounded.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from chaos.conductor import play
from chaos.plan import StoreKind, draw_plan
from soak._evidence import arguments, conclude, say

if TYPE_CHECKING:
    from chaos.conductor import Result
    from chaos.observed import Recorder

ROUND = 25.0
"""Seconds of faults in a round; then all must come back."""

TOLD_EACH = 10.0


@dataclass
class Account:
    """What came of all rounds on one store."""

    rounds: int = 0
    runs: int = 0
    terms: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    excused: Counter[str] = field(default_factory=Counter[str])
    stalls: list[float] = field(default_factory=list[float])
    backs: list[float] = field(default_factory=list[float])
    lost: Counter[str] = field(default_factory=Counter[str])
    broken: list[float] = field(default_factory=list[float])
    unguarded: list[float] = field(default_factory=list[float])
    probations: int = 0
    repeated: int = 0
    unexplained: int = 0
    violations: list[str] = field(default_factory=list[str])

    def add(self, result: Result) -> None:
        history = result.history
        self.rounds += 1
        self.runs += len(history.runs)
        self.terms += len(history.leases)
        self.faults += history.counts
        self.excused += result.excused
        self.stalls += [one.end - one.begin for one in history.stalls]
        self.lost += Counter(loss.kind for loss in history.lost_leases)
        self.broken += result.broken
        self.unguarded += result.unguarded
        self.probations += result.probations
        self.repeated += result.repeated
        self.backs.append(result.back)
        self.unexplained += len(history.unexplained)
        if result.found is not None:
            self.violations.append(result.found.rule)
            say(result.complaint)

    def line(self, store: str, minutes: float) -> str:
        return (
            f"{store}, {minutes:.1f} minutes, {self.rounds} rounds: {self.runs} runs in {self.terms} terms,"
            f" {self.faults.total()} faults ({listed(self.faults)}); runs that went on while another one ran:"
            f" {listed(self.excused)};{self.forgotten}"
            f" all jobs ran again within {max(self.backs, default=0):.1f} s of the last fault;"
            f" loops stood still unasked {len(self.stalls)} times, {max(self.stalls, default=0) * 1000:.0f} ms at most;"
            f" sync runs whose term was lost for no known reason: {self.unexplained};"
            f" violations: {', '.join(self.violations) or 'none'}"
        )

    @property
    def forgotten(self) -> str:
        """The figures about leases that a running server lost, as text; "" if it lost none."""
        if not self.lost:
            return ""
        return (
            f" leases lost by a running server {self.lost.total()} times ({listed(self.lost)}):"
            f" {self.probations} probations, {len(self.broken)} overlaps with a replica that had been following,"
            f" {len(self.unguarded)} with one that had not, {max(self.unguarded, default=0) * 1000:.0f} ms at most,"
            f" {self.repeated} slots run again after an old state;"
        )


def listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "none"


def table(accounts: dict[StoreKind, Account]) -> str:
    """The figures of each store, a column for each."""
    columns = list(accounts.values())

    def by_kind(counts: list[Counter[str]]) -> list[tuple[str, list[int]]]:
        return [(f"  {kind}", [one[kind] for one in counts]) for kind in sorted(set().union(*counts))]

    rows: list[tuple[str, list[int]]] = [
        ("rounds", [one.rounds for one in columns]),
        ("runs", [one.runs for one in columns]),
        ("terms", [one.terms for one in columns]),
        ("faults", [one.faults.total() for one in columns]),
        *by_kind([one.faults for one in columns]),
        ("excused overlaps", [one.excused.total() for one in columns]),
        *by_kind([one.excused for one in columns]),
        ("leases lost by a running server", [one.lost.total() for one in columns]),
        *by_kind([one.lost for one in columns]),
        ("probations", [one.probations for one in columns]),
        ("overlaps, had followed", [len(one.broken) for one in columns]),
        ("overlaps, had not followed", [len(one.unguarded) for one in columns]),
        ("violations", [len(one.violations) for one in columns]),
    ]
    lines = [f"{'':32}" + "".join(f"{store:>10}" for store in accounts)]
    lines += [f"{name:32}" + "".join(f"{number:10}" for number in numbers) for name, numbers in rows]
    return "\n".join(lines)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--store", choices=[*get_args(StoreKind), "both"], default="both")
    parser.add_argument("--seed", default=None, help="the rounds' seeds begin with it; default: the time of day")
    options = parser.parse_args()
    seed = options.seed or time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    stores: list[StoreKind] = [kind for kind in get_args(StoreKind) if options.store in {kind, "both"}]
    accounts = {store: Account() for store in stores}
    spent = dict.fromkeys(stores, 0.0)
    said = time.monotonic()
    while any(spent[store] < 60 * options.minutes for store in stores):
        for store in stores:
            account = accounts[store]
            plan = draw_plan(f"{seed}-{account.rounds}", store)
            say(f"round {account.rounds + 1}: {plan}")

            def tell(recorder: Recorder, store: StoreKind = store) -> None:
                nonlocal said
                if time.monotonic() - said >= TOLD_EACH:
                    said = time.monotonic()
                    so_far = accounts[store]
                    say(
                        f"  {store} {spent[store] / 60:4.1f} min: {so_far.runs + recorder.started} runs,"
                        f" {so_far.faults.total() + len(recorder.history.faults)} faults,"
                        f" {len(so_far.violations)} violations"
                    )

            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                account.add(asyncio.run(play(plan, Path(directory), ROUND, tell)))
            spent[store] += time.monotonic() - begun
    say(table(accounts))
    conclude(
        "chaos",
        [
            (
                f"seed {seed}; 3 or 4 workers with six jobs, async and sync, of the three shapes; scaled: `lock_expiry`"
                " 1 to 2 s; Redis each through a proxy of its own; all stamps on the boot clock"
            ),
            *(account.line(store, spent[store] / 60) for store, account in accounts.items()),
        ],
        good=all(not account.violations and account.runs > spent[store] for store, account in accounts.items()),
        record=options.record,
    )


if __name__ == "__main__":
    main()
