"""The timeline as SVG: text stays text, no font is loaded, and it has a ground of its own, light or dark as the page.

Drawn from the record alone: the same record gives the same file.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.timeline_events import hand_overs, lost_ticks
from benchmarks.timeline_replica import BODY, HEARTBEAT, LOCK_EXPIRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records import Record
    from benchmarks.timeline_events import HandOver

__all__ = ["timeline"]

WIDTH, HEIGHT = 960, 500
LEFT, RIGHT = 92, 936
LANES, PITCH, BAR = 122, 56, 40
CLOSE, CLOSE_PITCH, CLOSE_BAR = 396, 38, 26

LIGHT = {
    "ground": "#ffffff",
    "edge": "#d1d9e0",
    "ink": "#1f2328",
    "soft": "#59636e",
    "process": "#eef1f4",
    "term": "#cfe5ff",
    "run": "#0969da",
    "stop": "#9a6700",
    "kill": "#cf222e",
}
DARK = {
    "ground": "#0d1117",
    "edge": "#3d444d",
    "ink": "#f0f6fc",
    "soft": "#9aa4af",
    "process": "#1c2129",
    "term": "#153a68",
    "run": "#58a6ff",
    "stop": "#d9a53a",
    "kill": "#ff7b72",
}

SANS = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"

COLOURS = {"SIGTERM": "stop", "SIGKILL": "kill"}


def _style() -> str:
    def rules(palette: dict[str, str]) -> str:
        fills = "".join(f".{name}{{fill:{value}}}" for name, value in palette.items())
        return fills + "".join(f".{name}-line{{stroke:{value}}}" for name, value in palette.items())

    return (
        f"text{{font-family:{SANS};font-size:12px}}.big{{font-size:15px;font-weight:600}}.bold{{font-weight:600}}"
        f".token{{font-family:{MONO};font-size:9.5px}}.small{{font-size:11px}}line,path{{fill:none}}"
        f"{rules(LIGHT)}@media (prefers-color-scheme:dark){{{rules(DARK)}}}"
    )


class Scale(NamedTuple):
    """From moments to places."""

    begin: float
    end: float
    left: float
    right: float

    def __call__(self, moment: float) -> float:
        inside = min(max(moment, self.begin), self.end)
        return self.left + (inside - self.begin) / (self.end - self.begin) * (self.right - self.left)


class Sheet:
    """Collects elements."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, kind: str, *, radius: float = 0) -> None:
        rounded = f' rx="{radius:g}"' if radius else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height:g}"{rounded} class="{kind}"/>'
        )

    def line(self, x: float, top: float, bottom: float, kind: str, *, dashes: str = "", width: float = 1) -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(
            f'<path d="M{x:.1f} {top:g}V{bottom:g}" class="{kind}-line" stroke-width="{width:g}"{dashed}/>'
        )

    def path(self, drawn: str, kind: str, *, width: float = 1) -> None:
        self.parts.append(f'<path d="{drawn}" class="{kind}-line" stroke-width="{width:g}"/>')

    def dot(self, x: float, y: float, kind: str = "soft") -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:g}" r="1.6" class="{kind}"/>')

    def mark(self, x: float, y: float, signal: str) -> None:
        """A triangle for SIGTERM, a cross for SIGKILL; it stands on `y`."""
        if signal == "SIGTERM":
            self.parts.append(f'<path d="M{x - 5.5:.1f} {y - 9:g}h11l-5.5 9z" class="stop"/>')
        else:
            self.path(f"M{x - 4.5:.1f} {y - 9:g}l9 9m0 -9l-9 9", "kill", width=2.4)

    def text(self, x: float, y: float, words: str, kind: str = "ink", *, anchor: str = "start") -> None:
        anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text x="{x:.1f}" y="{y:g}" class="{kind}"{anchored}>{escape(words)}</text>')


def timeline(records: Sequence[Record], date: str) -> str:
    """The whole picture."""
    until = max(float(one["until"]) for one in records)
    events = hand_overs(records)
    sheet = Sheet()
    sheet.parts.append(
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" class="ground edge-line"/>'
    )
    sheet.text(20, 28, "One job every 100 ms, three replicas: a rolling deploy, then a crash", "big ink")
    sheet.text(
        20,
        47,
        f"Recorded {date[:10]} from real processes on Redis; lock_expiry {LOCK_EXPIRY:g} s, heartbeat {HEARTBEAT:g} s "
        "(defaults: 10 s, 3 s). A crash costs what is left of the lease.",
        "small soft",
    )
    scale = Scale(0, until, LEFT, RIGHT)
    _phases(sheet, events, scale)
    for seat in sorted({one["row"] for one in records}):
        _lane(sheet, [one for one in records if one["row"] == seat], scale, LANES + PITCH * (int(seat[-1]) - 1))
    _events(sheet, events, scale)
    _axis(sheet, scale)
    _legend(sheet)
    handed = [event for event in events if event.heir is not None]
    for signal, left, right in (("SIGTERM", LEFT, 478), ("SIGKILL", 566, RIGHT)):
        event = next(one for one in handed if one.signal == signal)
        _close_up(sheet, event, left, right)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title about">',
        '<title id="title">Three replicas through a rolling deploy and a crash</title>',
        f'<desc id="about">{escape(_told(events, records))}</desc>',
        f"<style>{_style()}</style>",
        '<defs><pattern id="rest" width="6" height="6" patternUnits="userSpaceOnUse">',
        '<path d="M-1 7l8 -8M2 10l8 -8M-4 4l8 -8" class="kill-line"/></pattern></defs>',
    ]
    return "\n".join([*head, *sheet.parts, "</svg>\n"])


def _told(events: Sequence[HandOver], records: Sequence[Record]) -> str:
    """The picture in words, for those who cannot see it."""
    said = []
    for event in events:
        after = "it did not lead"
        if event.heir is not None:
            after = f"the next run starts on {event.heir['row']} {event.after(event.next_run)} ms later"
        said.append(f"{event.signal} to {event.old['row']}: {after}.")
    return " ".join([*said, f"Ticks without a run: {lost_ticks(records)}."])


def _phases(sheet: Sheet, events: Sequence[HandOver], scale: Scale) -> None:
    """What is going on, above the signals."""
    stops = [event for event in events if event.signal == "SIGTERM"]
    kills = [event for event in events if event.signal == "SIGKILL"]
    handed = sum(event.heir is not None for event in stops)
    cut = sum(event.old["runs"][-1][2] is None for event in kills)
    for words, some, end in (
        (f"rolling deploy: {handed} hand-over{'s' * (handed > 1)}, {_ticks(stops)}", stops, kills[0].at - 0.15),
        (f"crash: {f'{cut} run cut short, ' if cut else ''}{_ticks(kills)}", kills, scale.end),
    ):
        begin = scale(some[0].at)
        sheet.path(f"M{begin:.1f} 86v-6H{scale(end):.1f}v6", "edge", width=1.5)
        sheet.text(begin, 74, words, "bold ink")


def _ticks(events: Sequence[HandOver]) -> str:
    lost = sum(event.lost for event in events)
    return f"{lost or 'no'} {'tick' if lost == 1 else 'ticks'} lost"


def _events(sheet: Sheet, events: Sequence[HandOver], scale: Scale) -> None:
    for event in events:
        x, colour = scale(event.at), COLOURS[event.signal]
        top = LANES + PITCH * (int(event.old["row"][-1]) - 1)
        sheet.line(x, 88, LANES + 2 * PITCH + BAR, colour, dashes="2 3")
        sheet.mark(x, top - 1, event.signal)
        after = "it did not lead" if event.heir is None else f"+{event.after(event.next_run)} ms: next run"
        sheet.text(x + 5, 96, event.signal, f"small bold {colour}")
        sheet.text(x + 5, 109, after, "small ink")


def _lane(sheet: Sheet, processes: Sequence[Record], scale: Scale, top: float) -> None:
    sheet.text(LEFT - 12, top + 24, processes[0]["row"], "soft", anchor="end")
    for one in processes:
        _process(sheet, one, scale, top, BAR)
        begin = scale(one["began"])
        free = min([term["from"] for term in one["terms"]], default=scale.end)
        if one["began"] > 0:
            sheet.text(begin + 5, top + 24, "new", "small bold soft")
        elif free > 0:
            sheet.text(begin + 5, top + 24, "follows", "small soft")
        for term in one["terms"]:
            sheet.text(scale(term["from"]) + 4, top + 12, f"token …{term['token'] % 10**9:09}", "token ink")
        for beat in one["beats"]:
            if beat > 0:
                sheet.dot(scale(beat), top + BAR - 4)


def _process(sheet: Sheet, one: Record, scale: Scale, top: float, height: float) -> None:
    """The process, its terms, the rest of a killed one's lease, and its runs."""
    ended = scale.end if one["ended"] is None else one["ended"]
    killed = one["signal"] == "SIGKILL"
    begin, end = scale(one["began"]), scale(one["signalled"] if killed else ended)
    sheet.rect(begin, top, end - begin, height, "process", radius=3)
    for term in one["terms"]:
        over = one["signalled"] if killed else scale.end if term["to"] is None else term["to"]
        sheet.rect(scale(term["from"]), top, scale(over) - scale(term["from"]), height, "term", radius=3)
    if killed:
        x = scale(one["signalled"])
        sheet.parts.append(
            f'<rect x="{x:.1f}" y="{top:g}" width="{scale(one["expires"]) - x:.1f}" height="{height:g}" '
            'fill="url(#rest)" class="kill-line" stroke-width="0.6"/>'
        )
    for _, start, finish in one["runs"]:
        if scale.begin < start < scale.end:
            x, done = scale(start), finish or (one["signalled"] if killed else scale.end)
            sheet.rect(x, top + height * 0.42, scale(done) - x, height * 0.4, "run")


def _axis(sheet: Sheet, scale: Scale) -> None:
    y = LANES + 2 * PITCH + BAR + 10
    sheet.path(f"M{LEFT} {y}H{RIGHT}", "edge")
    for second in range(int(scale.end) + 1):
        x = scale(second)
        sheet.line(x, y, y + 4, "edge")
        sheet.text(x, y + 16, f"{second} s", "small soft", anchor="middle")


def _legend(sheet: Sheet) -> None:
    y, x = 330, float(LEFT)
    sheet.rect(x, y - 9, 4, 10, "run")
    sheet.text(x + 10, y, f"a run of the job, {1000 * BODY:.0f} ms", "small soft")
    sheet.rect(x + 166, y - 10, 22, 12, "term", radius=3)
    sheet.text(x + 194, y, "a term, with its fencing token", "small soft")
    sheet.parts.append(
        f'<rect x="{x + 390:g}" y="{y - 10}" width="22" height="12" fill="url(#rest)" class="kill-line" '
        'stroke-width="0.6"/>'
    )
    sheet.text(x + 418, y, "a dead replica's lease, until it ends in Redis", "small soft")
    sheet.dot(x + 704, y - 4)
    sheet.text(x + 712, y, "a request to Redis", "small soft")


def _close_up(sheet: Sheet, event: HandOver, left: float, right: float) -> None:
    """Both replicas of a hand-over, enlarged, with every step in milliseconds from the signal."""
    assert event.heir is not None
    assert event.given is not None
    assert event.elected is not None
    assert event.next_run is not None
    colour, killed = COLOURS[event.signal], event.signal == "SIGKILL"
    if killed:
        renewed = max(beat for beat in event.old["beats"] if beat < event.at)
        scale = Scale(renewed - 0.06, event.next_run + 0.46, left, right)
    else:
        scale = Scale(event.at - 0.06, max(event.at + 0.19, event.next_run + 0.09), left, right)
    old, new = CLOSE, CLOSE + CLOSE_PITCH
    sheet.text(left, CLOSE - 34, "the crash, closer" if killed else "the first hand-over, closer", "bold ink")
    for one, top in ((event.old, old), (event.heir, new)):
        sheet.text(left - 12, top + 17, one["row"], "soft", anchor="end")
        _process(sheet, one, scale, top, CLOSE_BAR)
    x = scale(event.at)
    sheet.line(x, old - 4, new + CLOSE_BAR + 4, colour, dashes="2 3")
    sheet.mark(x, old - 2, event.signal)
    sheet.text(x - 8, old - 9, event.signal, f"small bold {colour}", anchor="end")
    given, elected, run = scale(event.given), scale(event.elected), scale(event.next_run)
    sheet.line(given, old - 6, old + CLOSE_BAR, "ink")
    sheet.line(elected, new, new + CLOSE_BAR + 6, "ink")
    sheet.line(run, new + CLOSE_BAR, new + CLOSE_BAR + 6, "ink")
    below = new + CLOSE_BAR + 18
    if killed:
        sheet.dot(scale(renewed), old + CLOSE_BAR - 3)
        sheet.text(given, old - 9, f"+{event.after(event.given)} ms: its lease ends", "small ink", anchor="end")
    else:
        sheet.text(given, old - 9, f"+{event.after(event.given)} ms: run ended, lease released", "small ink")
    sheet.text(elected - 3, below, f"+{event.after(event.elected)} ms: leads", "small ink", anchor="end")
    sheet.text(run + 3, below, f"+{event.after(event.next_run)} ms: next run", "small ink")
