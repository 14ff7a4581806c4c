"""A span per run, in a body that is put around the user's: the runner knows nothing of it.

The runner's check of the term is the last thing before it calls a body, and here the making of a span comes in between,
with whatever a sampler and the span's processors do. So the check is made again, after all that: it stays the last
thing in the task (sync bodies: in the thread) that calls the user's body. Where nobody traces, only the question who
does comes in between, about a microsecond.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from opentelemetry import context, trace
from opentelemetry.trace import Status, StatusCode

from .._core.errors import LeadershipLost
from .._jobs.timing import fixed_period

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from opentelemetry.trace import Span, Tracer

    from .._jobs.definition import JobDefinition
    from .._jobs.handles import Run

__all__ = ["traced"]

SHORTEST_PERIOD = 1.0
"""Seconds; a job that runs more often has no spans, unless they are asked for."""

Ending: TypeAlias = Literal["ok", "failed", "cancelled"]

ALONE: context.Context = context.Context()
"""A run is no part of the trace in which the app was started, say: its span is the root of a trace."""


def traced(job: JobDefinition, tracer: Tracer, *, spans: bool | None) -> JobDefinition:
    """The job with a body that makes a span around the call of its own; the job itself where it is to have none."""
    period = fixed_period(job.timing)
    if spans is False or (spans is None and period is not None and period < SHORTEST_PERIOD):
        return job
    name, body, is_async = f"run {job.name}", job.body, job.is_async

    def spanned(run: Run) -> object:
        span = tracer.start_span(name, context=ALONE)
        if not span.get_span_context().is_valid:
            return body(run)  # nobody traces
        return _awaited(span, run, body) if is_async else _called(span, run, body)

    return replace(job, body=spanned)


def _called(span: Span, run: Run, body: Callable[[Run], object]) -> object:
    """Call a body in its thread; an awaitable that it returns belongs to the same span."""
    with _current(span, run):
        run.check()
        answer = body(run)
    if inspect.isawaitable(answer):
        return _awaited(span, run, lambda _run: answer)
    _end(span, "ok")
    return answer


async def _awaited(span: Span, run: Run, body: Callable[[Run], Any]) -> None:
    with _current(span, run):
        run.check()
        await body(run)
    _end(span, "ok")


@contextmanager
def _current(span: Span, run: Run) -> Generator[None]:
    """Make the span the current one; whatever is raised ends it."""
    if span.is_recording():
        span.set_attributes(_attributes(run))
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield
    except asyncio.CancelledError:
        _end(span, "cancelled")
        raise
    except BaseException as error:
        if isinstance(error, LeadershipLost) and not run.remaining:
            _end(span, "cancelled")
        else:
            span.set_attribute("error.type", _name(type(error)))
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
            _end(span, "failed")
        raise
    finally:
        context.detach(token)


def _end(span: Span, outcome: Ending) -> None:
    span.set_attribute("singletonjob.outcome", outcome)
    span.end()


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _attributes(run: Run) -> dict[str, str | int | float]:
    attributes: dict[str, str | int | float] = {
        "singletonjob.project": run.project,
        "singletonjob.job": run.job,
        "singletonjob.node": run.node_id,
        "singletonjob.token": run.token,
        "singletonjob.scheduled_at": run.scheduled_at.isoformat(),
        "singletonjob.lateness": (run.started_at - run.scheduled_at).total_seconds(),
    }
    if run.tick is not None:
        attributes["singletonjob.tick"] = run.tick
    return attributes
