"""The two timelines of docs/how-it-works.md, drawn from what unmodified replicas did in virtual time.

    PYTHONPATH=src:tests python -m simulation.timelines          # draws docs/pictures/*.svg anew

Default settings, but for the ticks: what a hand-over takes is to be seen, so the job of the first ticks every 100 ms,
that of the second every second. Colours are of about the same contrast on a light and on a dark page.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.scenario import EXPIRY, USABLE, Fleet, Job
from singletonjob.stores.protocol import Acquire, Renew

if TYPE_CHECKING:
    from simulation.scenario_replica import Replica
    from singletonjob import Run

__all__ = ["PICTURES", "Timeline", "crash", "graceful"]

PICTURES = Path(__file__).parents[2] / "docs/pictures"

INK, LEASE, LEADER, NEXT, TROUBLE = "#808891", "#b08800", "#2f81f7", "#57ab5a", "#e5534b"
LEFT, RIGHT, WIDTH, LANE, TOP = 118, 20, 780, 46, 34


@dataclass(slots=True, kw_only=True)
class Timeline:
    """Lanes of one picture from `begin` to `end`, in true seconds; `steps` are what its numbered marks say."""

    title: str
    begin: float
    end: float
    grid: float
    lanes: list[str]
    shapes: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def x(self, when: float) -> float:
        when = min(max(when, self.begin), self.end)
        return LEFT + (when - self.begin) / (self.end - self.begin) * (WIDTH - LEFT - RIGHT)

    def y(self, lane: str) -> float:
        """The middle of a lane."""
        return TOP + LANE * self.lanes.index(lane) + LANE / 2

    def band(
        self, lane: str, begin: float, end: float, colour: str, *, height: float = 26, opacity: float = 0.2
    ) -> None:
        left, top = self.x(begin), self.y(lane) - height / 2
        self.shapes.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(self.x(end) - left, 1.5):.1f}" height="{height}" rx="2"'
            f' fill="{colour}" fill-opacity="{opacity}"/>'
        )

    def arrow(self, begin: float, end: float, source: str, target: str, colour: str = INK) -> None:
        """A request or a notice on its way."""
        down = 1 if self.y(target) > self.y(source) else -1
        x, y = self.x(end), self.y(target) - down * 13
        self.shapes.append(
            f'<path d="M{self.x(begin):.1f} {self.y(source) + down * 13:.1f}L{x:.1f} {y:.1f}'
            f'm-3 {-down * 6}l3 {down * 6}l3 {-down * 6}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        )

    def mark(self, lane: str, when: float, text: str, *, colour: str = INK, aside: float = 0) -> None:
        """A numbered mark above a lane, and what it says below the picture."""
        self.steps.append(text)
        x, y = self.x(when), self.y(lane)
        self.shapes.append(
            f'<path d="M{x:.1f} {y - 16:.1f}v32" stroke="{colour}" stroke-width="1.5"/>'
            f'<circle cx="{x + aside:.1f}" cy="{y - 23:.1f}" r="8" fill="{colour}"/>'
            f'<text x="{x + aside:.1f}" y="{y - 19.5:.1f}" text-anchor="middle" font-size="10" font-weight="bold"'
            f' fill="#fff">{len(self.steps)}</text>'
        )

    def svg(self) -> str:
        """The whole file."""
        bottom = TOP + LANE * len(self.lanes)
        parts = [f'<text x="0" y="14" font-weight="bold">{escape(self.title)}</text>']
        for lane in self.lanes:
            y = self.y(lane)
            parts.append(f'<text x="0" y="{y + 4:.1f}">{escape(lane)}</text>')
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity="0.35"/>')
        parts += self.shapes
        for number in range(int((self.end - self.begin) / self.grid + 1e-6) + 1):
            x = self.x(self.begin + number * self.grid)
            label = f"{number * self.grid:g} s" if self.grid >= 1 else f"{number * self.grid * 1000:.0f} ms"
            parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="{INK}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle" font-size="10">{label}</text>')
        for number, step in enumerate(self.steps, 1):
            y = bottom + 24 + 17 * number
            parts.append(f'<text x="{LEFT}" y="{y}">{number}. {escape(step)}</text>')
        height = bottom + 24 + 17 * len(self.steps) + 10
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
            f' font-family="sans-serif" font-size="12" fill="{INK}">\n<title>{escape(self.title)}</title>\n'
            + "\n".join(parts)
            + "\n</svg>\n"
        )


def _draw_runs(picture: Timeline, fleet: Fleet, lane: str, replica: Replica, colour: str) -> None:
    for run in fleet.runs("tick", replica):
        if run.ended > picture.begin and run.started < picture.end:
            picture.band(lane, run.started, run.ended, colour, height=18, opacity=0.9)


def graceful() -> Timeline:
    """SIGTERM in the middle of a run."""

    async def body(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(0.045)

    with Fleet(Job("tick", "fixed", 0.1, body)) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(20.3)
        fleet.wait_for(lambda: a.running, within=0.2)
        fleet.wait(0.012)
        stopped = fleet.now
        a.stop()
        fleet.wait(1)
        first, second = fleet.leases("tick")[-2:]
        last = fleet.runs("tick", a)[-1]
        next_run = fleet.runs("tick", b)[0]
        (asked,) = b.client.asked(Acquire, since=stopped)
        picture = Timeline(
            title="A graceful hand-over",
            begin=stopped - 0.08,
            end=stopped + 0.22,
            grid=0.05,
            lanes=["replica A", "lease in the store", "replica B"],
        )
        picture.band("replica A", picture.begin, last.ended, LEADER)
        picture.band("lease in the store", picture.begin, first.ends, LEADER, opacity=0.35)
        picture.band("lease in the store", second.granted, picture.end, NEXT, opacity=0.35)
        picture.band("replica B", second.heard[0][0], picture.end, NEXT)
        _draw_runs(picture, fleet, "replica A", a, LEADER)
        _draw_runs(picture, fleet, "replica B", b, NEXT)
        picture.arrow(last.ended, first.ends, "replica A", "lease in the store")
        picture.arrow(asked, second.granted, "replica B", "lease in the store")
        picture.mark(
            "replica A",
            stopped,
            "SIGTERM. No run starts any more; the one in flight is told, and goes on.",
            colour=TROUBLE,
        )
        picture.mark(
            "replica A",
            last.ended,
            f"The run has ended, {_ms(last.ended - stopped)} later. Now the lease is given back; a notice tells so.",
            colour=LEADER,
        )
        picture.mark(
            "lease in the store",
            second.granted,
            f"B heard the notice and asked; it has the lease {_ms(second.granted - first.ends)} after its release.",
            colour=NEXT,
            aside=12,
        )
        picture.mark(
            "replica B",
            next_run.started,
            f"The next point of the grid that all share, {_ms(next_run.started - last.started)} after A's last start.",
            colour=NEXT,
        )
        return picture


def crash() -> Timeline:
    """SIGKILL some time after a renewal."""
    with Fleet(Job("tick", "fixed", 1.0)) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(21)
        renewed = len(fleet.lease("tick").renewed)
        fleet.wait_for(lambda: len(fleet.lease("tick").renewed) > renewed, within=4)
        fleet.wait(1.4)
        killed = fleet.now
        sent = a.client.answered[-1]
        a.kill()
        fleet.wait(14)
        first, second = fleet.leases("tick")[-2:]
        next_run = fleet.runs("tick", b)[0]
        picture = Timeline(
            title="A crash",
            begin=sent - 4,
            end=sent + 12.5,
            grid=1,
            lanes=["replica A", "lease in the store", "replica B"],
        )
        picture.band("replica A", picture.begin, killed, LEADER)
        picture.band("lease in the store", picture.begin, sent + USABLE, LEADER, opacity=0.35)
        picture.band("lease in the store", sent + USABLE, first.ends, LEASE, opacity=0.5)
        picture.band("lease in the store", second.granted, picture.end, NEXT, opacity=0.35)
        picture.band("replica B", second.heard[0][0], picture.end, NEXT)
        _draw_runs(picture, fleet, "replica A", a, LEADER)
        _draw_runs(picture, fleet, "replica B", b, NEXT)
        for request, replica, lane in ((Renew, a, "replica A"), (Acquire, b, "replica B"), (Renew, b, "replica B")):
            for when in replica.client.asked(request, since=picture.begin):
                if when < picture.end:
                    picture.arrow(when, when, lane, "lease in the store")
        asked = [when for when in b.client.asked(Acquire) if picture.begin < when <= second.granted]
        picture.mark(
            "replica A", sent, "A's last renewal leaves. Its lease is good for 9 s from here, in the store for 10 s."
        )
        picture.mark("replica A", killed, f"SIGKILL, {killed - sent:.1f} s later.", colour=TROUBLE)
        picture.mark(
            "lease in the store",
            sent + USABLE,
            "A's own deadline. Were A alive but cut off, its run would be cancelled here, and none would start.",
            colour=LEASE,
        )
        picture.mark(
            "lease in the store",
            second.granted,
            f"The lease ended {_ms(first.ends - (sent + EXPIRY))} after 10 s (the way to the store); B has it"
            f" {_ms(second.granted - first.ends)} later.",
            colour=NEXT,
            aside=6,
        )
        picture.mark(
            "replica B",
            next_run.started,
            f"B runs at the next point of the grid. It had asked {_times(len(asked))} before, and as the lease ended.",
            colour=NEXT,
            aside=6,
        )
        return picture


def _times(asked: int) -> str:
    return {1: "not once", 2: "once"}.get(asked, f"{asked - 1} times")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, picture in (("graceful-hand-over", graceful()), ("crash-hand-over", crash())):
        (PICTURES / f"{name}.svg").write_text(picture.svg())
