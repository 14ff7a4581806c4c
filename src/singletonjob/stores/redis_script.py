"""The script that carries out requests on a server."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from .redis_errors import code_of

__all__ = ["lacks_script", "script"]


@cache
def script() -> tuple[bytes, bytes]:
    """The script's text, and its name on the server."""
    text = Path(__file__).with_name("exchange.lua").read_bytes()
    return text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def lacks_script(reply: object) -> bool:
    """Whether a server answers that it knows no script of that name: it was restarted, failed over or flushed."""
    return isinstance(reply, Exception) and code_of(reply) == "NOSCRIPT"
