"""The errors of Redis servers and of the client, as errors of this library that say what to do."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ..._core.errors import StoreError, StoreUnavailable
from ..name_look_ups import slow_look_up
from .wire import prefix

if TYPE_CHECKING:
    from collections.abc import Generator

    from .address import Place

__all__ = ["LOG_IN", "SERVER_WIDE", "code_of", "refusal", "translated", "words_of"]

# The client removes the code from the text of errors for which it has a class.
CODES = {
    "AskError": "ASK",
    "AuthenticationError": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}

UNAVAILABLE = {
    "BUSY": "runs a script that does not end; end it with SCRIPT KILL",
    "CLUSTERDOWN": "belongs to a Cluster that is down",
    "LOADING": "is loading its data",
    "MASTERDOWN": "is a replica that lost its primary",
    "MISCONF": "cannot save to its disk and refuses writes; see the server's log",
    "NOREPLICAS": "has too few replicas and refuses writes (min-replicas-to-write)",
    "OOM": "is out of memory (maxmemory) and refuses writes; give it more, or evict",
    "READONLY": "is a read-only replica",
    "TRYAGAIN": "is moving its slots",
}

NO_RIGHT_IN_SCRIPT = ("The user executing the script", "ERR The user executing the script", "ERR ACL failure in script")
"""How different versions of Redis begin an error in a script that outside a script begins with NOPERM."""

REPLICA = frozenset({"MASTERDOWN", "READONLY"})

CLUSTER = frozenset({"ASK", "CROSSSLOT", "MOVED"})

LOG_IN = "the log-in (AUTH, SELECT)"
"""The name of the command in an error while connecting."""

FIRST = "TIME"
"""The first command of a new connection."""

SERVER_WIDE = frozenset(UNAVAILABLE) | CLUSTER | {"NOPERM"}
"""The codes of errors that do not concern a single job."""


def code_of(error: BaseException | str) -> str:
    """Return the code at the beginning of the server's error, such as `READONLY`; '' if there is none."""
    if isinstance(error, BaseException):
        for kind in type(error).__mro__:
            if kind.__name__ in CODES:
                return CODES[kind.__name__]
    text = str(error)
    if text.startswith(NO_RIGHT_IN_SCRIPT):
        return "NOPERM"
    word = text.partition(" ")[0]
    return word if word.isupper() and word.isalpha() else ""


def words_of(error: BaseException | str) -> str:
    """Return the server's own words, without the arguments of an unknown command, which may be a complete script."""
    return str(error).partition(", with args beginning with")[0]


def refusal(address: Place, error: BaseException | str, command: str = "", project: str = "PROJECT") -> StoreError:
    """Return the error to raise for a server's error in answer to `command`."""
    code, text = code_of(error), words_of(error)
    if code in UNAVAILABLE:
        advice = f"; {address.primary}" if code in REPLICA else ""
        return StoreUnavailable(f"redis store: the server at {address} {UNAVAILABLE[code]}{advice}")
    if code in CLUSTER and address.cluster:
        return StoreUnavailable(
            f"redis store: the server at {address} does not serve the slot of the project; {address.primary}"
        )
    if code in CLUSTER or "not allowed in cluster mode" in text:
        return StoreError(
            f"redis store: the server at {address} is a node of a Cluster, which a plain URL cannot use;"
            " write redis+cluster://host:6379"
        )
    if code in {"NOAUTH", "WRONGPASS"}:
        who = f"user {address.username or 'default'!r}"
        if address.password is None:
            return StoreError(f"redis store: the server at {address} wants a password; {address.login}")
        return StoreError(
            f"redis store: the server at {address} does not take the password of {who} ({_end(text)});"
            " correct user and password in the URL"
        )
    if code == "NOPERM":
        pattern = _pattern(text, prefix(project, cluster=address.cluster))
        return StoreError(
            f"redis store: user {address.username or 'default'!r} at {address} has not the right for {command}"
            f" ({_end(text.removeprefix('NOPERM '))}); grant it by ACL SETUSER{pattern}"
        )
    advice = ""
    if command == FIRST and text.lower().startswith("unknown command"):
        advice = "; if it is a Sentinel, write redis+sentinel://host:26379/service/0"
    return StoreError(f"redis store: the server at {address} refused {command}: {text}{advice}")


def _pattern(text: str, project: str) -> str:
    """Return the pattern of keys or channels for which the user lacks a right, according to the server."""
    if "channel" in text:
        return f" with &{project}:notice"
    if " key" not in text:
        return ""
    return f" with ~{project}:*" if project.startswith("{") else f" with ~{project}:* and ~{{{project}:*"


@contextlib.contextmanager
def translated(address: Place, command: str) -> Generator[None, None, None]:
    """Convert the errors of client, server and operating system into `StoreError`, with the cause chained."""
    from redis.exceptions import AuthenticationError, RedisError, ResponseError
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    try:
        yield
    except RedisConnectionError as error:
        # For a Unix socket the client wraps the server's answer to the log-in in one of these.
        inner = error.__cause__ if isinstance(error.__cause__, RedisError) else error
        if code_of(inner) or isinstance(inner, AuthenticationError):
            raise refusal(address, inner, command) from error
        reason = _reason(error)
        raise StoreUnavailable(f"redis store: {address}: {reason}{_with_tls(address, command, reason)}") from error
    except (TimeoutError, RedisTimeoutError) as error:
        what = slow_look_up(error) or f"no answer to {command} in time{_without_tls(address, command)}"
        raise StoreUnavailable(f"redis store: {address}: {what}") from error
    except ResponseError as error:
        raise refusal(address, error, command) from error
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"redis store: {address}: {_end(str(error))}") from error


def _without_tls(address: Place, command: str) -> str:
    """Return a hint for a TLS connection without an answer: a server without TLS waits for more bytes."""
    wanted = command == FIRST and getattr(address, "tls", None) is not None
    return "; a server that does not speak TLS is as silent as that" if wanted else ""


def _with_tls(address: Place, command: str, reason: str) -> str:
    """Return a hint for a plain connection that the server closed, as a server with TLS does."""
    wanted = command == FIRST and getattr(address, "tls", ...) is None and reason == "Connection closed by server"
    return "; if it speaks TLS, write rediss:// in the URL" if wanted else ""


def _reason(error: BaseException) -> str:
    """Return why there is no connection. The client's text repeats the address and hides the system's error."""
    cause = error.__context__
    distrust: str | None = getattr(cause, "verify_message", None)  # of ssl.SSLCertVerificationError
    if distrust is not None:
        advice = "; name the file of its authority by ssl_ca_certs in the URL"
        if "not valid for" in distrust:
            advice = "; write the host as its certificate has it"
        elif "expired" in distrust:
            advice = ""
        return f"certificate verify failed: {_end(distrust)}{advice}"
    # For these only, because the number of a TLS error means something else.
    if isinstance(cause, ConnectionError | FileNotFoundError | PermissionError) and cause.errno is not None:
        return os.strerror(cause.errno)
    return _end(str(error))


def _end(text: str) -> str:
    return text.strip().rstrip(".")
