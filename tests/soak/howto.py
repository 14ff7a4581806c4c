"""The how-to pages as printed, each in a new virtual environment with the wheel, and the demo in a copy of the tree."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from howto.following import pages
from howto.fresh import follow_each
from howto.place import ROOT
from soak._evidence import arguments, conclude, say


def copy_of_the_tree(directory: Path) -> None:
    """What a clone of it would have, and what is not yet added."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, done.stdout.split("\0")):
        source, target = ROOT / name, directory / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def demo() -> tuple[bool, str]:
    """`sh scripts/demo` where nothing is set up."""
    with tempfile.TemporaryDirectory(prefix="howto-") as directory:
        copy_of_the_tree(Path(directory))
        begun = time.monotonic()
        command = ["sh", "scripts/demo", "--json"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        took = time.monotonic() - begun
        if done.returncode != 0:
            say(done.stderr[-3000:])
            return False, f"`sh scripts/demo` in a copy without an environment: exit code {done.returncode}"
        told = json.loads(done.stdout)
    return told["overlaps"] == 0, (
        f"`sh scripts/demo` in a copy without an environment: {took:.0f} s with its set-up,"
        f" {told['runs']} runs, {told['overlaps']} overlaps"
    )


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what was started in the background ignores it
    lines, good = [], True
    for one in follow_each(pages(), say):
        if one.wrong:
            say(one.wrong)
        lines.append(f"{one.page.name}: {'NOT as printed' if one.wrong else 'as printed'}, {one.seconds:.0f} s")
        good = good and one.wrong is None
    shown, line = demo()
    conclude("howto", [*lines, line], good=good and shown, record=options.record)


if __name__ == "__main__":
    main()
