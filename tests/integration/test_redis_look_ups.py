"""A resolver that does not answer: no process waits for it, neither one that runs jobs nor one that looks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from integration.test_redis_outages import CALL_TIMEOUT, SCALED
from replicas import TICK, Fleet, boot
from waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

NO_RESOLVER = (
    """
import socket
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
"""
    + TICK
    + """
if __name__ == "__main__":
    app.run()
"""
)


@pytest.mark.parametrize("script", [False, True], ids=["by the command line", "as a script"])
def test_a_process_whose_look_ups_hang_for_ever_exits_within_its_grace(tmp_path: Path, script: bool) -> None:
    with Fleet(tmp_path, **SCALED) as fleet:
        replica = fleet.start(NO_RESOLVER, script=script, store="redis://cache:6379/0")
        # The command line logs where this can be read; a script's own logging is not set up.
        wait_for(lambda: replica.log("heartbeat-error") or replica.complaints(), what="its complaint")
        time.sleep(1)
        left = replica.signal(signal.SIGTERM)
        assert replica.end() == 0
        assert boot() - left < 3 * CALL_TIMEOUT + 3


LOOK = """
import socket, sys, threading
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
from singletonjob.cli import main
sys.exit(main(["status", "--store", "redis://cache:6379/0", "--project", "pricing"]))
"""


def test_a_look_from_the_command_line_ends_although_its_name_look_up_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert re.search("cache:6379.*in time", done.stderr)
