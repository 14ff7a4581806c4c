"""`singletonjob health URL`: asks a process that serves `--health` how it stands; for exec probes and for people."""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

from .._jobs.duration import positive

__all__ = ["arguments"]

EXAMPLE = """\
examples:
  singletonjob health http://127.0.0.1:8081
  singletonjob health http://127.0.0.1:8081/readyz --timeout 0.5s
  singletonjob health :8081 --json

URL is http://HOST:PORT, or what `run --health` was given; without a path it means
/livez: whether a restart would help. /readyz: started, and the store was seen.
Redirects are not followed, and proxies of the environment are not used.

Exit code 0: the answer is 2xx; 1: it is another, or there is none; 2: wrong usage.
"""

LONGEST_BODY = 1 << 20
"""Bytes that are looked at; the health of 1,000 jobs has 40 kB."""


class Reply(NamedTuple):
    status: int
    reason: str
    body: bytes


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `health` takes."""
    parser.epilog = EXAMPLE
    parser.add_argument("url", metavar="URL", type=_url, help="whom to ask, for example http://127.0.0.1:8081/readyz")
    parser.add_argument("--timeout", metavar="TIME", default="2s", help="how long all of it may take, at most (2s)")
    parser.add_argument("--json", action="store_true", help="print the answer as it came, and nothing else")
    parser.set_defaults(handler=health)


def health(options: argparse.Namespace) -> int:
    """Ask, and say it in a line; returns 0 for an answer of 2xx, else 1. Raises `ConfigError` for a bad timeout."""
    url: SplitResult = options.url
    found = _ask(url, positive(options.timeout, "--timeout"))
    if isinstance(found, str):
        print(f"singletonjob health: {url.geturl()}: {found}", file=sys.stderr)
        return 1
    good = 200 <= found.status < 300
    told = _json(found.body)
    if options.json and told is not None:
        print(found.body.decode().strip())
        return 0 if good else 1
    line = f"{found.status} {found.reason}".strip() + _summary(told)
    if good and not options.json:
        print(line)
    else:
        text = "the answer is no JSON: " if options.json else ""
        print(f"singletonjob health: {url.geturl()}: {text}{line}", file=sys.stderr)
    return 0 if good else 1


def _ask(url: SplitResult, seconds: float) -> Reply | str:
    """The answer, or why there is none."""
    found: list[Reply | str] = []

    def ask() -> None:
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=seconds)
        try:
            target = f"{url.path}?{url.query}" if url.query else url.path
            connection.request("GET", target, headers={"Connection": "close", "Accept": "application/json"})
            answer = connection.getresponse()
            found.append(Reply(answer.status, answer.reason, answer.read(LONGEST_BODY)))
        except (OSError, HTTPException, UnicodeError) as error:
            if not isinstance(error, TimeoutError):
                text = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
                found.append(text or type(error).__name__)
        finally:
            connection.close()

    # The socket's own limit is for each of its calls, and none bounds the look-up of a name.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else f"no answer within {seconds:g} s"


def _json(body: bytes) -> dict[str, Any] | None:
    """The object that it is; None: it is none."""
    try:
        told = json.loads(body)
    except ValueError:
        return None
    return cast("dict[str, Any]", told) if isinstance(told, dict) else None


def _summary(told: dict[str, Any] | None) -> str:
    """`: ok; price-tick leading`, of an answer that is ours."""
    if told is None or not isinstance(told.get("jobs"), dict):
        return ""
    listed = ", ".join(f"{name} {state}" for name, state in told["jobs"].items())
    return f": {told.get('status')}; {listed or 'no jobs'}"


def _url(text: str) -> SplitResult:
    """A URL, or an address as `run --health` takes it; without a path `/livez`."""
    whole = text if "://" in text else f"http://{'127.0.0.1' if text.startswith(':') else ''}{text}"
    wrong = argparse.ArgumentTypeError(f"{text!r} is no URL; write http://HOST:PORT, http://127.0.0.1:8081 for one")
    try:
        found = urlsplit(whole)
        port = found.port
    except ValueError as error:
        raise wrong from error
    if found.scheme not in {"http", "https"} or not found.hostname or port == 0 or re.search(r"[^!-~]|@", whole):
        raise wrong
    return found._replace(path=found.path if found.path.strip("/") else "/livez", fragment="")
