"""The pictures for README and docs, as SVG: drawn in colours that can be read on a light and on a dark page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.field import FIELD
from benchmarks.groups import imports, many, overlap
from benchmarks.heat import ROOT
from benchmarks.records import HOME, load
from benchmarks.timeline_picture import timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.records import Results

__all__ = ["draw"]

INK = "#808891"
"""Text and axes: a grey of about the same contrast on white and on black."""

COLOURS = {
    "ours": "#2f81f7",
    "ours_uvloop": "#76a9fa",
    "ours_redis": "#2f81f7",
    "ours_follower": "#76a9fa",
    "floor": "#8b949e",
    "call_at": "#d29922",
    "call_at_uvloop": "#b08800",
    "aps3": "#db6d28",
    "aps3_background": "#e5534b",
    "aps4": "#bf4b8a",
    "aiocron": "#986ee2",
    "arq": "#57ab5a",
    "redbeat": "#39a0a0",
    "pydocket": "#a0785a",
}


def draw() -> None:
    """Draw all that there are results for."""
    for name, group, picture in (
        ("lateness", "ticks", _lateness),
        ("overlap", "overlap", _overlap),
        ("many", "many", _many),
        ("imports", "imports", _imports),
    ):
        results = load(group)
        if results is not None:
            file = HOME / "pictures" / f"{name}.svg"
            file.parent.mkdir(exist_ok=True)
            # Neither date nor random ids: the same results give the same file.
            picture(results).savefig(file, transparent=True, bbox_inches="tight", metadata={"Date": None})
    results = load("timeline")
    if results is not None:
        file = ROOT / "docs" / "pictures" / "timeline.svg"
        file.parent.mkdir(exist_ok=True)
        file.write_text(timeline(results.records, results.origin["date"]))


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    settings: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "singletonjob",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": INK,
        "grid.alpha": 0.25,
        "legend.frameon": False,
    }
    mpl.rcParams.update(settings)
    figure, axes = plt.subplots(1, columns, figsize=(width, height), squeeze=False)
    return figure, list(axes[0])


def _lateness(results: Results) -> Figure:
    """What share of the ticks was at most so late, every 10 ms."""
    figure, (axis,) = _figure(7.5, 3.6)
    row = "10 ms"
    for who in ("floor", "ours", "ours_uvloop", "call_at", "call_at_uvloop", "aps3", "aps3_background", "aps4"):
        rounds = results.values(row, who, "quantiles")
        if not rounds:
            continue
        pooled = sorted(value for quantiles in rounds for value in quantiles)
        shares = [100 * (place + 1) / len(pooled) for place in range(len(pooled))]
        axis.step(
            [max(value, 5.0) for value in pooled],  # what came early stands at the left edge
            shares,
            where="post",
            label=FIELD[who].label,
            color=COLOURS[who],
            linewidth=2.4 if who == "ours" else 1.4,
            linestyle="--" if "uvloop" in who else ":" if who == "floor" else "-",
        )
    axis.set(
        xscale="log", xlim=(5, 10_000), ylim=(0, 100), xlabel="at most so late (5 µs: or early)", ylabel="% of ticks"
    )
    axis.set_xticks([10, 100, 1000, 10_000], ["10 µs", "100 µs", "1 ms", "10 ms"])
    axis.set_title("A tick every 10 ms: how late its body starts", loc="left", fontsize=11)
    axis.grid(visible=True)
    axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    return figure


def _overlap(results: Results) -> Figure:
    """Three seconds of runs, one lane for each that is in flight at once."""
    figure, (axis,) = _figure(7.5, 3.6)
    row = overlap.QUICK
    names = [who for who in FIELD if who in results.contestants(row) and results.values(row, who, "runs")]
    lane, ticks, labels = 0.0, [], []
    for who in names:
        free: list[float] = []
        top = lane
        for start, end in results.values(row, who, "runs")[0]:
            if start > 3:
                break
            place = next((place for place, until in enumerate(free) if until <= start), len(free))
            if place == len(free):
                free.append(0.0)
            free[place] = end
            width = min(end, 3.2) - start - 0.008  # so that runs back to back can be told apart
            axis.barh(top + place, width, left=start, height=0.8, color=COLOURS[who], alpha=0.85, linewidth=0)
        lane += max(1, len(free)) + 0.6
        ticks.append(top + (len(free) - 1) / 2)
        labels.append(FIELD[who].label)
    axis.set_yticks(ticks, labels)
    axis.invert_yaxis()
    axis.tick_params(axis="y", length=0)
    axis.set(xlim=(0, 3), xlabel="seconds")
    axis.set_title("A body of 250 ms every 100 ms: what runs at once", loc="left", fontsize=11)
    axis.grid(visible=True, axis="x")
    axis.set_axisbelow(True)
    return figure


def _many(results: Results) -> Figure:
    """Memory and CPU with 1, 100 and 1000 idle jobs."""
    figure, axes = _figure(9, 3.2, columns=2)
    for axis, key, title in zip(
        axes, ("rss_mb", "cpu_percent"), ("Idle jobs: memory, MB", "Idle jobs: CPU, % of a core"), strict=True
    ):
        for who in many.WEIGHED:
            found = [(size, results.mid(many.idle_row(size), who, key)) for size in many.SIZES]
            known = [(size, value) for size, value in found if value is not None]
            if known:
                axis.plot(
                    *zip(*known, strict=True),
                    marker="o",
                    markersize=4,
                    label=FIELD[who].label,
                    color=COLOURS[who],
                    linewidth=2.2 if who == "ours_redis" else 1.4,
                    linestyle="--" if who == "ours_follower" else "-",
                )
        axis.set(xscale="log", xlabel="jobs", ylim=(0, None))
        axis.set_xticks(many.SIZES, [str(size) for size in many.SIZES])
        axis.minorticks_off()
        axis.set_title(title, loc="left", fontsize=11)
        axis.grid(visible=True)
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    return figure


def _imports(results: Results) -> Figure:
    """What an import adds to the start of a process."""
    names = [who for who in imports.SUBJECTS if not who.startswith("bare") and results.mid(imports.ROW, who, "ms")]
    added = [
        (results.mid(imports.ROW, who, "ms") or 0) - (results.mid(imports.ROW, imports.bare_of(who), "ms") or 0)
        for who in names
    ]
    figure, (axis,) = _figure(7.5, 0.3 * len(names) + 0.8)
    bars = axis.barh(
        [imports.SUBJECTS[who].label for who in names],
        added,
        color=[COLOURS.get(who, COLOURS["ours"] if who.startswith("ours") else INK) for who in names],
        height=0.65,
    )
    axis.bar_label(bars, [f" {value:.0f} ms" for value in added], color=INK, fontsize=9)
    axis.invert_yaxis()
    axis.tick_params(axis="y", length=0)
    axis.set(xlim=(0, 1.12 * max(added)))
    axis.set_title("Import: milliseconds over a bare interpreter", loc="left", fontsize=11)
    axis.grid(visible=True, axis="x")
    axis.set_axisbelow(True)
    return figure
