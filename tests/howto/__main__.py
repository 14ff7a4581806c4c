"""`sh scripts/howto [PAGE ...]`: follow pages as a newcomer would."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from howto.following import pages
from howto.fresh import follow_each


def main(wanted: list[str]) -> int:
    """Follow the pages with these names, or all; 0 when each does what it says, 1 when one does not, 2 for no page."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what was started in the background ignores both
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    found = {path.stem: path for path in pages()}
    names = [Path(name).stem for name in wanted] or list(found)
    if unknown := [name for name in names if name not in found]:
        say(f"howto: {', '.join(unknown)}: no page that can be followed; there are {', '.join(found)}")
        return 2
    failed: list[str] = []
    for one in follow_each([found[name] for name in names], say):
        say(one.wrong or f"{one.page.stem}: as printed, {one.seconds:.0f} s")
        if one.wrong:
            failed.append(one.page.stem)
    say(f"not as printed: {', '.join(failed)}" if failed else f"{len(names)} pages, all as printed")
    return 1 if failed else 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


sys.exit(main(sys.argv[1:]))
