"""The tape: what a replica did, as lines on its standard output. All that the show tells and sums up comes from it.

A line is a JSON list `[moment, what, job, value]`, the moment on the monotonic clock, which the processes of a machine
share. The first two kinds come from the bodies themselves:

    start, end      a body began or ended; `start` has the token
    gap             the first run of a term: seconds since the last run ended, anywhere
    snapshot        a snapshot is in the sink: the prices
    features        features were computed
    alarm, fresh    the prices are too old, or no longer so: their age in seconds
    elected         this replica leads the job from now on: the token
    stepped-down    its term is over: the reason
    dropped         ticks that will not run: [how many, cause]
    failed          a run failed: the error
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from singletonjob import Run

__all__ = ["Tape"]

STDOUT = 1


class Tape:
    """Writes the tape. Each line is with the kernel before `write` returns, so that a kill loses none."""

    def write(self, what: str, job: str, value: object = None) -> None:
        """Note this moment. May be called from any thread."""
        os.write(STDOUT, json.dumps([time.monotonic(), what, job, value]).encode() + b"\n")

    @contextmanager
    def run(self, run: Run) -> Generator[None]:
        """Note the begin and the end of a run."""
        self.write("start", run.job, run.token)
        try:
            yield
        finally:
            self.write("end", run.job)
