"""The contract on many replicas at once: threads and processes, a counter that they share, and a model of it all."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING

from .base import StoreTests
from .contest import contend, wait_for_the_others
from .history import terms, violations

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from .base import MakeStore

__all__ = ["Processes", "Threads"]

REPLICAS = 4


def contest(pool: Executor, make_store: MakeStore, counter: Path) -> None:
    """Let all of them contend; check that no addition was lost, and that what each saw is possible."""
    counter.write_text("0")
    seen = [
        future.result()
        for future in [pool.submit(contend, make_store, counter, f"n-{number}") for number in range(REPLICAS)]
    ]
    history = [operation for one in seen for operation in one.history]
    assert violations(history) == []
    added = [one.added for one in seen]
    assert int(counter.read_text()) == sum(added)
    assert sum(count > 0 for count in added) > 1, added  # else nobody contended
    assert {job for job, _ in terms(history)} == {"counted", "hasty"}


class Threads(StoreTests):
    """Many replicas in one process, each on a loop of its own."""

    def test_threads_that_contend_never_hold_a_lease_together(self, make_store: MakeStore, tmp_path: Path) -> None:
        make_store()  # imports what it needs here: pytest's own compiler of asserts fails in several threads at once
        with ThreadPoolExecutor(REPLICAS) as pool:
            contest(pool, make_store, tmp_path / "counter")


class Processes(StoreTests):
    """Many processes; not for a store that lives in one."""

    def test_processes_that_contend_never_hold_a_lease_together(self, make_store: MakeStore, tmp_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(REPLICAS)
        with ProcessPoolExecutor(
            REPLICAS, mp_context=context, initializer=wait_for_the_others, initargs=(barrier.wait,)
        ) as pool:
            contest(pool, make_store, tmp_path / "counter")
