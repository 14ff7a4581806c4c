"""The units of docs/systemd.md: systemd itself finds nothing to say of them, and they leave a run its time."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from howto.defaults import longest_stop
from howto.page import File, steps
from howto.place import ROOT
from singletonjob._jobs.options import resolve

UNITS = {step.name: step.text for step in steps((ROOT / "docs" / "systemd.md").read_text()) if isinstance(step, File)}


def service(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names as they are written
    parser.read_string(UNITS[name])
    return parser["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_has_nothing_against_the_units(tmp_path: Path) -> None:
    for name, text in UNITS.items():
        # systemd looks for what it is to start.
        here = text.replace("/srv/pricing/.venv/bin", str(Path(sys.executable).parent)).replace(
            "/usr/bin/systemctl", "/bin/sh"
        )
        (tmp_path / name).write_text(here)
    names = [re.sub("@", "@1", name) for name in UNITS]
    (tmp_path / "pricing@1.service").symlink_to(tmp_path / "pricing@.service")
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "pricing" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr


@pytest.mark.parametrize("name", ["pricing.service", "pricing@.service"])
def test_a_unit_waits_longer_for_the_end_than_the_jobs_may_take(name: str) -> None:
    unit = service(name)
    assert float(unit["TimeoutStopSec"].removesuffix("s")) > longest_stop()
    assert unit.get("KillSignal", "SIGTERM") == "SIGTERM"
    assert "singletonjob run" in unit["ExecStart"]
    assert not re.search(r"\bsh\b", unit["ExecStart"])


@pytest.mark.parametrize("name", ["pricing.service", "pricing@.service"])
def test_a_unit_waits_for_ready_and_restarts_what_is_stuck_and_releases_good_jobs_first(name: str) -> None:
    unit = service(name)
    assert (unit["Type"], unit["NotifyAccess"], unit["WatchdogSignal"]) == ("notify", "main", "SIGTERM")
    # After a suspend all jobs may look stuck for one heartbeat_interval (`docs/health.md`).
    assert float(unit["WatchdogSec"].removesuffix("s")) >= 4 * resolve({}).heartbeat_interval
