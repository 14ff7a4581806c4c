"""Cron against a walk over real time with `zoneinfo` alone, around each clock change; and what a next slot costs.

Minute by minute for 26 hours before and after each transition; expressions with seconds second by second for two and a
half. `--expressions N`, `--zones N` take fewer or more, `--seed N` others.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from cron_walk import ZONES, Window, drawn, transitions
from singletonjob import SingletonJobs
from singletonjob._core.cron import Cron
from singletonjob._core.errors import ScheduleError
from soak._evidence import arguments, conclude, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cron_walk import Expression

YEARS = 2015, 2030
SHOWN = 5
"""So many differences are shown in full."""

SECOND = 1_000_000
ASKED = 8
"""Moments between slots, drawn, that each window is asked about beside the chain of its slots."""

CALL_LIMIT, START_LIMIT, JOBS = 50e-6, 1.0, 1000
COSTS = (
    ("0 3 * * *", "UTC"),
    ("*/5 * * * *", "Europe/Berlin"),
    ("* * * * * *", "Asia/Singapore"),
    ("30 2 * * MON-FRI", "America/New_York"),
    ("0 0 L * *", "America/Santiago"),
    ("0 9 1 1 *", "Europe/Paris"),
    ("0 9 29 2 *", "Europe/Paris"),
)


class Told(NamedTuple):
    """What one transition showed."""

    counts: Counter[str]
    differences: list[str]


def compare(expression: Expression, window: Window, cron: Cron) -> tuple[int, str]:
    """How many slots the walk found, and the first difference of `cron`, if any."""
    first, last, wanted = expression.walk(window)
    found, name = list[int](), f"'{expression}' in {cron.tz}"
    instant = first * SECOND - 1
    while (later := cron.after(instant)) is not None and later <= last * SECOND:
        found.append(later)
        instant = later
    slots = [slot * SECOND for slot in wanted]
    if found != slots:
        odd = min(set(found) ^ set(slots), default=first * SECOND)
        return len(slots), f"{name}: {cron.local(odd).isoformat()} is in {'the walk' if odd in slots else 'Cron'} only"
    source = random.Random(f"{name} {window.transition}")
    for _ in range(ASKED):
        moment = source.randrange(first * SECOND, last * SECOND)
        later, index = cron.after(moment), bisect_right(slots, moment)
        known = slots[index] if index < len(slots) else None
        if later != known and (known is not None or later is None or later <= last * SECOND):
            return len(slots), f"{name}: after {cron.local(moment).isoformat()}: {later}, not {known}"
    return len(slots), ""


def around(zone: str, transition: int, seeds: Sequence[int]) -> Told:
    window, counts, differences = Window(zone, transition), Counter[str](), list[str]()
    for seed in seeds:
        expression = drawn(seed)
        try:
            slots, difference = compare(expression, window, Cron(expression.text, zone))
        except ScheduleError as error:
            slots, difference = 0, f"seed {seed}: {error}"
        counts.update(windows=1, slots=slots, busy=slots > 0, asked=slots + 1 + ASKED)
        if difference:
            differences.append(difference)
    return Told(counts, differences)


def costs() -> tuple[bool, list[str]]:
    """What a call of `after` takes, by expression, and the start of many jobs."""
    medians: dict[str, float] = {}
    every: list[float] = []
    for text, zone in COSTS:
        cron, instant, took = Cron(text, zone), 1_767_225_600 * SECOND, list[float]()
        for _ in range(400):
            began = time.perf_counter()
            later = cron.after(instant)
            took.append(time.perf_counter() - began)
            assert later is not None
            instant = later
        medians[text] = median(took)
        every += took
    app = SingletonJobs("cron-soak", store="memory")
    began = time.perf_counter()
    for number in range(JOBS):
        app.cron(f"{number % 60} {number // 60} * * *", tz=ZONES[number % 12], name=f"job-{number}")(_nothing)
    registered = time.perf_counter()
    with app.in_thread():
        while not all(app.is_leader(f"job-{number}") for number in range(JOBS)):
            time.sleep(0.002)
        started = time.perf_counter()
    told = ", ".join(f"`{text}` {took * 1e6:.0f}" for text, took in medians.items())
    return median(every) < CALL_LIMIT and started - began < START_LIMIT, [
        f"a next slot costs {median(every) * 1e6:.1f} us at the median (at most 50); by expression, in us: {told}",
        (
            f"{JOBS} cron jobs in 12 zones: registered in {registered - began:.2f} s, all lead"
            f" {started - registered:.2f} s later, on the memory store (at most 1 s in all)"
        ),
    ]


async def _nothing() -> None:
    """No body is needed to start."""


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--expressions", type=int, default=300)
    parser.add_argument("--zones", type=int, default=12, choices=range(1, len(ZONES) + 1), metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of the first expression (0)")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    cheap, lines = costs()
    for line in lines:
        say(line)
    places = [(zone, change) for zone in ZONES[: options.zones] for change in transitions(zone, *YEARS)]
    random.Random(1).shuffle(places)  # so that the time left can be told from the time taken
    seeds = range(options.seed, options.seed + options.expressions)
    counts, differences = Counter[str](), list[str]()
    begun = told = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        results = pool.map(around, *zip(*places, strict=True), [seeds] * len(places))
        for done, result in enumerate(results, 1):
            counts += result.counts
            for difference in result.differences[: max(0, SHOWN - len(differences))]:
                say(difference)
            differences += result.differences
            if time.monotonic() - told > 10:
                told = time.monotonic()
                left = (told - begun) / done * (len(places) - done)
                say(f"{done} of {len(places)} transitions, {len(differences)} differences, {left:.0f} s left")
    with_seconds = sum(drawn(seed).has_seconds for seed in seeds)
    conclude(
        "cron",
        [
            (
                f"{options.expressions} random expressions ({with_seconds} with seconds) x {options.zones} zones x"
                f" their {len(places)} transitions of {YEARS[0]} to {YEARS[1]}, against a walk with `zoneinfo` alone:"
                f" {counts['windows']} windows, {counts['busy']} with slots, {counts['slots']} slots,"
                f" {counts['asked']} calls, {len(differences)} differences, {time.monotonic() - begun:.0f} s"
            ),
            *lines,
        ],
        good=cheap and not differences and counts["busy"] > 0,
        record=options.record,
    )


if __name__ == "__main__":
    main()
