"""Database connections around a sync run: none that the server has closed meanwhile, and none left open."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.db import close_old_connections

if TYPE_CHECKING:
    from ..._jobs.definition import JobDefinition
    from ..._jobs.handles import Run

__all__ = ["with_fresh_connections"]


def with_fresh_connections(job: JobDefinition) -> JobDefinition:
    """The job with its sync body between two `close_old_connections()`, as Django has it around each request.

    The thread of a sync body lives as long as the app does, and no request ever ends in it. An async body is left
    alone: it touches the database in threads of its own choice.
    """
    if job.is_async:
        return job
    body = job.body

    def between(run: Run) -> object:
        close_old_connections()
        run.check()  # to close a connection may take its time
        try:
            return body(run)
        finally:
            close_old_connections()

    return replace(job, body=between)
