"""What a fleet's records show: what is asked of them, the tables, and the model's word on them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.fleet_model import CHUNK, Cost, Shape, load
from benchmarks.records import Check, bounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.records import Record, Results

__all__ = [
    "ACTS",
    "CALLS_OF_1000",
    "CLOSE",
    "MODELLED",
    "ON_ONE",
    "SPREAD",
    "THOUSAND",
    "TIMES",
    "WHO",
    "WITHIN",
    "checks",
    "said",
    "tables",
]

ON_ONE = "all leases on one replica"
SPREAD = "leases spread by chance"
THOUSAND = "1 replica of 1000 idle jobs"
ACTS = "single acts"

WHO = "ours_redis"

CALLS_OF_1000 = 1000 // CHUNK

CLOSE = "250ms"
"""A heartbeat at which one beat finds the caches as the last one left them."""

MODELLED = {"script calls/s": ("calls", 1), "server CPU %": ("server_percent", 2), "kB/s": ("kb", 1)}

WITHIN = {"calls": 1.5, "server_percent": 2.0, "kb": 1.5}
"""How many times more or less the model may say. CPU for a call depends on how deep the cores sleep in between."""

TIMES = ("idle", "call", "request", "ping", "message")
"""What a single act costs, of `Cost`."""


def said(replicas: float, jobs: float, leaders: float, cost: Cost) -> Record:
    """What the model says of a fleet of that shape, under the same names."""
    model = load(Shape(replicas=round(replicas), jobs=round(jobs), leaders=leaders), cost)
    return {
        "calls": model.calls,
        "pings": model.pings,
        "server_percent": 100 * model.cpu,
        "kb": model.bandwidth / 1000,
        "connections": model.connections,
    }


def _gaps(results: Results, row: str, key: str) -> list[float]:
    return [gap for gaps in results.values(row, WHO, key) for gap in gaps]


def _cost(results: Results) -> Cost | None:
    found = {name: results.mid(ACTS, WHO, name) for name in TIMES}
    times = {name: value / 1e6 for name, value in found.items() if value is not None}
    return Cost(**times) if len(times) == len(found) else None  # type: ignore[arg-type]  # none of them counts bytes


def _said(results: Results, row: str) -> Record:
    replicas, jobs, leaders = (results.mid(row, WHO, key) for key in ("replicas", "jobs", "leaders"))
    cost = _cost(results)
    if cost is None or replicas is None or jobs is None or leaders is None:
        return {}
    return said(replicas, jobs, leaders, cost)


def _ratio(results: Results, row: str, key: str) -> float | None:
    """The model's figure over the measured one."""
    measured, model = results.mid(row, WHO, key), _said(results, row)
    return model[key] / measured if measured and model else None


def checks(results: Results) -> list[Check]:
    found: list[Check] = []
    for row in (ON_ONE, SPREAD):
        downs = results.total(row, WHO, "stepped_down")
        found += [
            bounded(f"{row}: terms lost", downs, 0, unit="terms"),
            bounded(f"{row}: hand-over after a stop, median", _median(results, row, "stopped_ms"), 50, unit="ms"),
            bounded(f"{row}: hand-over after a stop, longest", _longest(results, row, "stopped_ms"), 500, unit="ms"),
            bounded(
                f"{row}: from the end of a killed leader's lease, longest",
                _longest(results, row, "killed_ms"),
                100,
                unit="ms",
            ),
        ]
        for what, (key, _) in MODELLED.items():
            ratio, within = _ratio(results, row, key), WITHIN[key]
            text = (
                f"{row}: {what}, model over measured: {'-' if ratio is None else f'{ratio:.2f}'}"
                f" ({1 / within:.2g} to {within:g})"
            )
            found.append(Check(text, passed=ratio is not None and 1 / within <= ratio <= within))
    for text, key, bound, unit in (
        ("server time of a beat, caches warm", "warm_script_ms", 5, "ms"),
        ("client CPU of a beat, caches warm", "warm_client_ms", 12, "ms"),
        ("CPU of the leader", "leader_percent", 1, "% of a core"),
        ("CPU of a follower", "follower_percent", 1, "% of a core"),
    ):
        found.append(bounded(f"{THOUSAND}: {text}", results.mid(THOUSAND, WHO, key), bound, unit=unit))
    return found


def _longest(results: Results, row: str, key: str) -> float | None:
    return max(_gaps(results, row, key), default=None)


def _median(results: Results, row: str, key: str) -> float | None:
    gaps = _gaps(results, row, key)
    return median(gaps) if gaps else None


def tables(results: Results) -> list[str]:
    return [_costs(results), _hand_overs(results), _model(results), _acts(results), _beat(results)]


def _table(title: str, heads: str, rows: list[list[str]]) -> str:
    columns = heads.count("|")
    return "\n".join(
        [title, "", f"| {heads} |", "| --- |" + " --: |" * columns, *(f"| {' | '.join(row)} |" for row in rows)]
    )


def _name(results: Results, row: str) -> str:
    return f"{results.text(row, WHO, 'replicas')} x {results.text(row, WHO, 'jobs')}, {row}"


def _costs(results: Results) -> str:
    columns = {
        "leaders": ("leaders", 0),
        "script calls/s": ("calls", 1),
        "PINGs/s": ("pings", 1),
        "server CPU %": ("server_percent", 2),
        "µs per call": ("script_us", 0),
        "client CPU %": ("client_percent", 3),
        "kB/s": ("kb", 1),
        "connections": ("connections", 0),
        "server MB": ("memory_mb", 1),
        "terms lost": ("stepped_down", 0),
    }
    return _table(
        "Replicas in four processes at the default settings, jobs of 1 s; CPU in % of a core, the clients' per replica",
        f"fleet | {' | '.join(columns)}",
        [
            [_name(results, row), *(results.text(row, WHO, key, digits) for key, digits in columns.values())]
            for row in (ON_ONE, SPREAD)
        ],
    )


def _hand_overs(results: Results) -> str:
    def cells(row: str, key: str) -> list[str]:
        gaps = sorted(_gaps(results, row, key))
        return [str(len(gaps)), f"{median(gaps):.1f}", f"{gaps[-1]:.1f}"] if gaps else ["-", "-", "-"]

    return _table(
        "Without a lease, ms: after a replica has stopped, and after the leases of a killed process have ended",
        "fleet | stopped: jobs | median | longest | killed: jobs | median | longest",
        [[_name(results, row), *cells(row, "stopped_ms"), *cells(row, "killed_ms")] for row in (ON_ONE, SPREAD)],
    )


def _model(results: Results) -> str:
    def cells(row: str) -> Iterator[str]:
        model = _said(results, row)
        for key, digits in MODELLED.values():
            ratio = _ratio(results, row, key)
            yield f"{model[key]:.{digits}f}" if model else "-"
            yield "-" if ratio is None else f"{ratio:.2f}"

    return _table(
        "What the model of docs/sizing.md says, and that over what was measured",
        f"fleet | {' | '.join(f'{what} | ratio' for what in MODELLED)}",
        [[_name(results, row), *cells(row)] for row in (ON_ONE, SPREAD)],
    )


def _acts(results: Results) -> str:
    columns = {
        "a script call, µs": "call",
        "each job in it, µs": "request",
        "a PING, µs": "ping",
        "a notice to one subscriber, µs": "message",
        "a second at rest, µs": "idle",
    }
    return _table(
        "CPU of the server for single acts at a fleet's pace, from which the model reckons",
        f"server | {' | '.join(columns)}",
        [["on this machine", *(results.text(ACTS, WHO, key, 1) for key in columns.values())]],
    )


def _beat(results: Results) -> str:
    columns = {
        "server: in the script, ms": "script_ms",
        "server: all CPU, ms": "server_ms",
        "client: CPU, ms": "client_ms",
        "with warm caches: script": "warm_script_ms",
        "server": "warm_server_ms",
        "client": "warm_client_ms",
        "CPU of the leader, %": "leader_percent",
        "of a follower, %": "follower_percent",
    }
    return _table(
        f"One beat of idle jobs, {CALLS_OF_1000} script calls in one go: at the default heartbeat, then at {CLOSE}."
        " CPU of the processes, at the default one, in % of a core",
        f"fleet | {' | '.join(columns)}",
        [[THOUSAND, *(results.text(THOUSAND, WHO, key, 2) for key in columns.values())]],
    )
