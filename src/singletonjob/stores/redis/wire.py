"""The requests to `exchange.lua` and its verdicts, one text for each.

For a thousand jobs, separate arguments for all values would cost the client ten times as much. Fields are separated by
`;`, which no name contains; a field that may contain anything comes last.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import unquote

from ..._core.orders import (
    FollowTrigger,
    Forget,
    Look,
    Ordered,
    OrderOutcome,
    Pause,
    Resume,
    StepDown,
    Trigger,
    pause_in_force,
)
from ..._core.protocol import (
    NO_PROGRESS,
    Acquire,
    Barred,
    Claimed,
    ClaimSlot,
    Failed,
    Granted,
    JobState,
    NotClaimed,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    TakeTrigger,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..._core.protocol import Batch, Progress, Request, Verdict

__all__ = ["ORIGIN", "channel", "lock_key", "names_key", "pack", "prefix", "script_call", "state_key", "verdict"]

ORIGIN = re.compile(r"^(?:@?user_script: ?\d+: )?-?")
"""The prefix of errors before Redis 7: the place in the script, and the sign of the protocol."""

HASH_COMMANDS = frozenset({"HMGET", "HSET"})

_RENEWED = Renewed()
_ORDERS: dict[str, Literal["", "paused", "resigned"]] = {"": "", "paused": "paused", "resigned": "resigned"}
_OUTCOMES: dict[str, OrderOutcome] = {outcome: outcome for outcome in get_args(OrderOutcome)}


def prefix(project: str, *, cluster: bool) -> str:
    """Return the beginning of all keys of a project; on a Cluster a hash tag, so that they share one slot."""
    return f"{{{project}}}" if cluster else project


def lock_key(project: str, job: str) -> str:
    """Return the key of the lease. Name, value and expiry are those of the original SingletonJob."""
    return f"{project}:{job}:lock"


def state_key(project: str, job: str) -> str:
    """Return the key of the state. If the project is no hash tag, the lock is one, by the literal braces."""
    lock = lock_key(project, job)
    return f"{lock}:state" if project.startswith("{") else f"{{{lock}}}:state"


def names_key(project: str) -> str:
    """Return the key of the set of all job names."""
    return f"{project}:jobs"


def channel(project: str) -> str:
    """Return the channel of the notices, which hold job names, one per line."""
    return f"{project}:notice"


def pack(command: Sequence[bytes]) -> bytes:
    """Return a packed command (redis.io, "RESP protocol", arrays of bulk strings)."""
    return b"*%d\r\n" % len(command) + _bulks(command)


def _bulks(arguments: Iterable[bytes]) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in arguments])


def script_call(command: bytes, script: bytes, batch: Batch, requests: Sequence[Request]) -> bytes:
    """Return the packed call of the script for some requests of the batch, whose project is the prefix of its keys.

    `command` is EVALSHA with the script's digest, or EVAL with its text.
    """
    count = 2 * len(requests) + 1
    keys = _keys(batch.project, tuple([request.job for request in requests]))
    void_at = "" if batch.void_at is None else str(batch.void_at)
    values = [batch.node, void_at, channel(batch.project), *map(_packed, requests)]
    head = b"*%d\r\n" % (3 + count + len(values)) + _bulks((command, script, b"%d" % count))
    # As one text, because a thousand small ones take four times as long to encode.
    text = "".join([f"${len(value)}\r\n{value}\r\n" for value in values])
    if text.isascii():
        return head + keys + text.encode()
    return head + keys + _bulks([value.encode(errors="backslashreplace") for value in values])  # node ids are free text


@lru_cache(maxsize=32)
def _keys(project: str, jobs: tuple[str, ...]) -> bytes:
    """Cached, because the names are the same in each call and are half of what a replica sends."""
    keys = [names_key(project)]
    for job in jobs:
        keys += (lock_key(project, job), state_key(project, job))
    return _bulks([key.encode() for key in keys])


def _packed(request: Request) -> str:
    match request:
        case Renew():
            progress = _progress(request.progress)
            return f"N;{request.job};{request.token};{_milliseconds(request.lock_expiry)};{progress}"
        case Acquire():
            return f"A;{request.job};{request.number};{_milliseconds(request.lock_expiry)};{request.above}"
        case Release():
            flags = f"{int(request.off)};{int(request.unused)}"
            return f"R;{request.job};{request.number};{flags};{_progress(request.progress)}"
        case ClaimSlot():
            return f"C;{request.job};{request.token};{request.slot};{request.mark}"
        case TakeTrigger():
            return f"K;{request.job};{request.token};{request.id};{int(request.busy)}"
        case Pause():
            micros = None if request.seconds is None else _micros(request.seconds)
            return f"P;{request.job};{_text(micros)};{int(request.replace)};{request.by};{request.reason}"
        case Resume():
            return f"U;{request.job}"
        case StepDown():
            return f"S;{request.job}"
        case Trigger():
            return f"T;{request.job};{_micros(request.seconds)};{request.id}"
        case FollowTrigger():
            return f"F;{request.job};{int(request.withdraw)};{request.id}"
        case Look():
            return f"L;{request.job}"
        case Forget():
            return f"D;{request.job}"


def _progress(progress: Progress) -> str:
    if progress == NO_PROGRESS:
        return ""
    ended, good = (None if ago is None else _micros(ago) for ago in (progress.ended_ago, progress.good_ago))
    numbers = map(
        _text, (progress.tick, progress.done, ended, progress.settled, progress.runs, progress.failures, good)
    )
    return ";".join([progress.outcome, *numbers, progress.finished])


def _micros(seconds: float) -> int:
    return max(0, round(seconds * 1e6))


@lru_cache(maxsize=32)
def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def verdict(packed: bytes, wall: int, project: str, job: str) -> Verdict:
    """Return the verdict in one line of the script's reply; `wall` is the store's clock in that reply."""
    if packed == b"N":
        return _RENEWED
    if b"%" in packed:
        packed = packed.replace(b"%0A", b"\n").replace(b"%25", b"%")
    kind, _, rest = packed.decode(errors="backslashreplace").partition(";")
    match kind:
        case "G":
            return _granted(rest, wall)
        case "N":
            order, trigger, pause = rest.split(";", 2)
            return Renewed(_ORDERS[order], trigger, _said(pause, wall))
        case "B":
            why, mine, ends, pause = rest.split(";", 3)
            seconds = None if ends == "" else (int(ends) - wall) / 1e6
            return Barred("paused" if why == "paused" else "resigned", seconds, mine == "1", _said(pause, wall))
        case "F":
            return Refused(holder=None, expires_in=None)
        case "X":
            left, foreign, token, holder = rest.split(";", 3)
            return Refused(holder=holder, expires_in=_left(left), foreign=foreign == "1", token=int(token))
        case "O":
            outcome, left, pause, was, holder = rest.split(";", 4)
            pauses = [pause_in_force(unquote(text), wall) for text in (pause, was)]
            return Ordered(_OUTCOMES[outcome], holder or None, _left(left), *pauses)
        case "D0" | "D1":
            return Released(mine=kind == "D1")
        case "C":
            return Claimed()
        case "T":
            return NotClaimed(why="taken", wall=wall)
        case "H":
            return NotClaimed(why="ahead", wall=wall)
        case "L":
            return NotClaimed(why="lost", wall=wall)
        case _:
            command, _, text = rest.partition(";")
            key = state_key(project, job) if command in HASH_COMMANDS else lock_key(project, job)
            return Failed(error=f"{command or 'the script for'} {key}: {ORIGIN.sub('', text).strip()}")


def _said(pause: str, wall: int) -> str:
    paused = pause_in_force(pause, wall)
    return "" if paused is None else paused.said


def _left(milliseconds: str) -> float | None:
    return None if milliseconds in {"", "-1"} else int(milliseconds) / 1000


def _granted(rest: str, wall: int) -> Granted:
    token, released, off, done, slot = rest.split(";", 4)
    last_slot, _, last_end = done.partition(":")
    time, slot_token, mark = slot.split(":", 2) if slot else ("", "", "")
    ended = _number(last_end)
    return Granted(
        token=int(token),
        state=JobState(
            wall=wall,
            slot=_number(time),
            slot_token=_number(slot_token),
            mark=mark,
            done=_number(last_slot),
            ended_ago=None if ended is None else (wall - ended) / 1e6,
            off=_number(off),
            released=int(released),
        ),
    )


def _number(text: str) -> int | None:
    return int(text) if text else None
