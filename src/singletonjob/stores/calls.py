"""One call of a store. The store may be the user's code, and each of its faults is a call without an answer."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from .._core.errors import StoreError
from .._core.protocol import Barred, Claimed, Failed, Granted, NotClaimed, Refused, Released, Renewed, Reply
from .._reporting.log_writer import shown

if TYPE_CHECKING:
    from .._core.protocol import Batch
    from ..stores import LeaseStore

__all__ = ["close", "exchange", "outcome"]

VERDICTS = (Granted, Renewed, Refused, Barred, Released, Claimed, NotClaimed, Failed)


async def exchange(store: LeaseStore, batch: Batch) -> Reply:
    """Return the store's reply to a batch. Raises what the store raises, and `StoreError` for an invalid reply.

    A `SystemExit` would end the thread of the loop, so it is a `StoreError` here.
    """
    name = f"{type(store).__name__}.exchange"
    try:
        call: Any = store.exchange(batch)
        if not inspect.isawaitable(call):
            raise StoreError(f"{name} returned {type(call).__name__}, not an awaitable; write `async def exchange`")
        reply: Any = await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise StoreError(f"{name} raised {error!r}") from error
    if not isinstance(reply, Reply):
        raise StoreError(f"{name} returned {type(reply).__name__}, not a Reply; see LeaseStore.exchange")
    if not reply.void and len(reply.verdicts) != len(batch.requests):
        sizes = f"{len(reply.verdicts)} verdicts for a batch of {len(batch.requests)}"
        raise StoreError(f"{name} returned {sizes}; return one for each request, in order")
    for verdict in reply.verdicts:
        if not isinstance(verdict, VERDICTS):
            raise StoreError(f"{name} returned a verdict of type {type(verdict).__name__}; see LeaseStore.exchange")
    return reply


async def outcome(call: asyncio.Future[Reply], seconds: float) -> tuple[Reply | None, str]:
    """Return the reply to a call; None and the reason if there is none within `seconds`.

    After that the call is dropped at once, without waiting for it to clean up.
    """
    await asyncio.wait({call}, timeout=seconds)
    if not call.done():
        call.cancel()
        call.add_done_callback(_forget)
        return None, f"no answer within {seconds:.3g} s"
    if call.cancelled():
        return None, "the call was cancelled"
    if (failure := call.exception()) is not None:
        return None, _text(failure)
    return call.result(), ""


async def close(store: LeaseStore) -> None:
    """Close the store. Raises `StoreError` instead of a `SystemExit`, as `exchange` does."""
    try:
        await store.close()
    except (SystemExit, KeyboardInterrupt) as error:
        raise StoreError(f"{type(store).__name__}.close raised {error!r}") from error


def _text(failure: BaseException) -> str:
    try:
        return str(failure) if isinstance(failure, StoreError) else shown(failure)
    except Exception:  # of a class of the user
        return type(failure).__qualname__


def _forget(call: asyncio.Future[Reply]) -> None:
    """Fetch the outcome, so that asyncio does not log a failure that nothing awaited."""
    if not call.cancelled():
        call.exception()
