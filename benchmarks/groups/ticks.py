"""How late ticks are, how many are early, lost or dropped, and what one costs, at periods from 1 ms to 1 s."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.assignment import Assignment
from benchmarks.field import FIELD
from benchmarks.groups.plan import MS, Step, entry, in_turn
from benchmarks.heat import run_heat
from benchmarks.measures import quantile, ticks, unaccounted
from benchmarks.records import Check, bounded, keep_marks, of_outcome

if TYPE_CHECKING:
    from benchmarks.groups.plan import Settings
    from benchmarks.heat import Outcome
    from benchmarks.records import Record, Results

__all__ = ["TITLE", "checks", "steps", "tables", "tick_record"]

TITLE = "Ticks: lateness, losses, CPU"


class Row(NamedTuple):
    """One period, in milliseconds. A heat runs side by side, the grids apart by equal shares of the period."""

    period: int
    seconds: float
    heats: tuple[tuple[str, ...], ...]


def _alone(*contestants: str) -> tuple[tuple[str, ...], ...]:
    return tuple((who,) for who in contestants)


FLOORS = ("floor_thread", "floor", "floor_uvloop")
OURS = ("ours", "ours_uvloop")
PEERS = ("call_at", "call_at_uvloop", "aps3_background", "aps4")

SIDE_BY_SIDE = "10 ms, side by side"
"""What a tick costs where all meet the same moments: those who run alone meet a core at another speed, up to twice."""

# Those of whom ratios are asked share a heat, but where they would be in each other's way.
ROWS = {
    "1 ms": Row(1, 3, _alone(*FLOORS, "floor_callback", *OURS, "aps3", "call_at")),
    "10 ms": Row(10, 3, _alone(*FLOORS, "floor_callback", *OURS, "aps3", *PEERS)),
    SIDE_BY_SIDE: Row(10, 4, (("floor", "floor_uvloop", *OURS, "aps3"),)),
    "100 ms": Row(100, 8, ((*FLOORS, *OURS, "aps3"), (*PEERS, "naive"))),
    "500 ms": Row(500, 10, ((*FLOORS, *OURS, "aps3", *PEERS, "naive"),)),
    "1 s": Row(1000, 10, (("floor", "ours", "aps3", "aiocron", "arq", "redbeat", "pydocket"),)),
}

PAIRS = (("asyncio", "ours", "floor"), ("uvloop", "ours_uvloop", "floor_uvloop"))


def steps(settings: Settings) -> list[Step]:
    found: list[Step] = []
    orders = {name: list(in_turn(row.heats, settings.rounds)) for name, row in ROWS.items()}
    places = {heat: list(in_turn(heat, settings.rounds)) for row in ROWS.values() for heat in row.heats}
    for index in range(settings.rounds):
        for name, row in ROWS.items():
            turn, heats = orders[name][index]
            seconds = settings.seconds or row.seconds
            for heat in heats:
                _, names = places[heat][index]
                start = 6 if name == "1 s" else 0.5 + 0.3 * len(names)
                found.append(
                    Step(
                        f"round {turn}, {name}: {', '.join(names)}",
                        start + 1 + seconds,
                        partial(_heat, settings, name, turn, names, seconds),
                    )
                )
    return found


def _heat(settings: Settings, row: str, turn: int, names: list[str], seconds: float) -> list[Record]:
    period = ROWS[row].period
    store = settings.server.emptied() if any(FIELD[name].server for name in names) else "memory"
    entries = [
        entry(
            name,
            Assignment(
                module="",
                stamps="",
                period=period * MS,
                # Grids that choose their own phase are on the whole second; the others keep clear of it.
                offset=(index * period // len(names) + (period // len(names) // 2 if row == "1 s" else 0)) * MS,
                store=store if FIELD[name].server else "memory",
                project=f"{name}-{turn}",
            ),
        )
        for index, name in enumerate(names)
    ]
    outcomes = run_heat(entries, seconds)
    keep_marks("ticks", outcomes, row=row, turn=turn)
    return [tick_record(outcome, row, turn) for outcome in outcomes]


def tick_record(outcome: Outcome, row: str, turn: int) -> Record:
    """The figures of one contestant in one window; lateness in microseconds."""
    record = of_outcome(outcome, row=row, turn=turn)
    if outcome.fault:
        return record
    found = ticks(outcome, FIELD[outcome.contestant].grid)
    record |= {"due": found.due, "served": found.served, "lost": found.lost, "early": found.early}
    record |= {"cpu_percent": round(100 * outcome.cpu / (outcome.end - outcome.begin), 3)}
    if not found.lateness:
        return record | {"fault": "no tick in the window"}
    quantiles = [round(quantile(found.lateness, share / 100), 1) for share in range(101)]
    record |= {
        "p50": median(found.lateness),
        "p99": quantiles[99],
        "max": quantiles[100],
        "min": quantiles[0],
        "drift": round(found.drift, 3),
        "on_grid": found.on_grid,
        "cpu_tick": round(outcome.cpu / 1000 / found.served, 2),
        "quantiles": quantiles,
    }
    return record | {"dropped": outcome.said.get("dropped"), "unaccounted": unaccounted(outcome)}


def checks(results: Results) -> list[Check]:
    found: list[Check] = []
    for row, peer_share in (("10 ms", 0.2), ("100 ms", 0.5), ("500 ms", 0.5)):
        for loop, ours, floor in PAIRS:
            tails = [results.mid(row, who, "p99") for who in (ours, floor)]
            p99 = "" if None in tails else f"; p99 {tails[0]:.0f} against {tails[1]:.0f} µs"
            found += [
                bounded(
                    f"{row}, {loop}: median lateness over the floor's",
                    results.ratio(row, ours, floor, "p50"),
                    1.5,
                    note=p99,
                ),
                bounded(
                    f"{row}, {loop}: median lateness over APScheduler 3's",
                    results.ratio(row, ours, "aps3", "p50"),
                    peer_share,
                ),
                bounded(f"{row}, {loop}: ticks early", results.total(row, ours, "early"), 0, unit="ticks"),
                bounded(
                    f"{row}, {loop}: ticks lost beyond the floor's",
                    _lost_beyond(results, row, ours, floor),
                    0.1,
                    unit="%",
                ),
                _no_drift(results, row, loop, ours),
            ]
    for loop, ours, floor in PAIRS:
        lost = [_lost_share(results, "1 ms", who) for who in (ours, floor)]
        share = None if lost[0] is None or lost[1] is None else 100 * (100 - lost[0]) / (100 - lost[1])
        found += [
            Check(
                f"1 ms, {loop}: ticks served of those that the floor serves: "
                + ("not measured" if share is None else f"{share:.2f} % (>= 98)"),
                passed=share is not None and share >= 98,
            ),
            bounded(f"1 ms, {loop}: ticks early", results.total("1 ms", ours, "early"), 0, unit="ticks"),
            _accounted(results, "1 ms", loop, ours),
        ]
    for loop, ours, floor in PAIRS:
        found += [
            bounded(
                f"1 ms, {loop}: CPU per tick over the floor's", results.ratio("1 ms", ours, floor, "cpu_tick"), 1.5
            ),
            _cpu(results, loop, ours, floor, "the floor's", 1.5),
            _cpu(results, loop, ours, "aps3", "APScheduler 3's", 0.5),
        ]
    return found


def _cpu(results: Results, loop: str, ours: str, other: str, whose: str, bound: float) -> Check:
    alone = results.ratio("10 ms", ours, other, "cpu_tick")
    return bounded(
        f"{SIDE_BY_SIDE}, {loop}: CPU per tick over {whose}",
        results.ratio(SIDE_BY_SIDE, ours, other, "cpu_tick"),
        bound,
        note="" if alone is None else f"; each alone, at another moment, {alone:.2f}",
    )


def _lost_share(results: Results, row: str, who: str) -> float | None:
    """In percent of the due ticks of all rounds."""
    lost, due = results.total(row, who, "lost"), results.total(row, who, "due")
    return 100 * lost / due if lost is not None and due else None


def _lost_beyond(results: Results, row: str, ours: str, floor: str) -> float | None:
    more, fewer = _lost_share(results, row, ours), _lost_share(results, row, floor)
    return None if more is None or fewer is None else more - fewer


def _no_drift(results: Results, row: str, loop: str, ours: str) -> Check:
    """Zero drift: every run was for a point of the grid; the measured slope is noise, and shown as such."""
    on_grid, drift = results.values(row, ours, "on_grid"), results.mid(row, ours, "drift")
    return Check(
        f"{row}, {loop}: all runs on the grid (slope {'-' if drift is None else f'{drift:.2f}'} s/h)",
        passed=bool(on_grid) and all(on_grid),
    )


def _accounted(results: Results, row: str, loop: str, ours: str) -> Check:
    """Between two runs near its beginning and its end, each grid point that has no run was counted as a drop."""
    odd, dropped = results.values(row, ours, "unaccounted"), results.total(row, ours, "dropped")
    return Check(
        f"{row}, {loop}: ticks neither run nor counted as dropped: "
        + (f"{sum(abs(value) for value in odd)} ({dropped:.0f} dropped)" if odd else "not measured"),
        passed=bool(odd) and not any(odd),
    )


def tables(results: Results) -> list[str]:
    found: list[str] = []
    for row in results.rows():
        lines = [
            f"Period {row}",
            "",
            "| contestant | due | served | early | p50 µs | p99 µs | max µs | drift s/h | CPU µs/tick | CPU % |",
            "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        ]
        for who in [name for name in FIELD if name in results.contestants(row)]:
            cells = [
                FIELD[who].label,
                *(f"{results.total(row, who, key) or 0:.0f}" for key in ("due", "served", "early")),
                *(results.text(row, who, key) for key in ("p50", "p99", "max")),
                results.text(row, who, "drift", 1),
                results.text(row, who, "cpu_tick"),
                results.text(row, who, "cpu_percent", 2),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        found.append("\n".join(lines))
    return found
