"""C108: the sample as one folder by PyInstaller and as a zip application: it starts, leads, hands over.

The one-file form and Nuitka's take too long: see tests/soak/freeze.py.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from freezing import hand_over, one_folder, zip_application
from redis_replicas import old_enough
from servers import OLDEST, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from freezing import HandOver

SHORT = {
    "SINGLETONJOB_LOCK_EXPIRY": "2s",
    "SINGLETONJOB_HEARTBEAT_INTERVAL": "0.5s",
    "SINGLETONJOB_MAX_BACKOFF_DELAY": "1s",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Started before the program is built, so that its amnesia guard is over by then."""
    with Server(OLDEST, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def frozen(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the frozen sample, built without a word on what to include."""
    return one_folder(tmp_path_factory.mktemp("frozen"))


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return zip_application(tmp_path_factory.mktemp("zipped"))


def good(seen: HandOver) -> None:
    assert seen.complaints == []
    assert seen.exit_code == 0
    assert seen.apart
    assert seen.led < 2
    assert seen.taken < 2  # the promises, and a period: 0.2 s; on a busy machine


def test_c108_a_frozen_program_leads_within_2_s_on_sqlite_and_hands_over_on_sigterm(
    frozen: list[str], tmp_path: Path
) -> None:
    good(hand_over(frozen, tmp_path, SINGLETONJOB_STORE=f"sqlite:///{tmp_path}/leases.db"))


@pytest.mark.parametrize(("kind", "database"), [("frozen", 0), ("zipped", 1)])
def test_c108_a_frozen_program_and_a_zip_application_lead_on_redis_and_hand_over_on_sigterm(
    kind: str, database: int, server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    command: list[str] = request.getfixturevalue(kind)
    old_enough(server, 4)  # lock_expiry + 1 s, in whole seconds
    store = f"redis://127.0.0.1:{server.port}/{database}"
    good(hand_over(command, tmp_path, SINGLETONJOB_STORE=store, **SHORT))


def test_c108_the_command_line_works_from_a_zip_application_without_metadata(zipped: list[str]) -> None:
    *python, archive = zipped
    code = f"import sys; sys.path.insert(0, {archive!r}); from singletonjob.cli import main; main(['--version'])"
    done = subprocess.run([*python, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "singletonjob of an unknown version (its package metadata is not here)\n", done.stderr
