"""The Lua scripts of the store."""

from __future__ import annotations

import hashlib
from functools import cache
from pkgutil import get_data

from .errors import code_of

__all__ = ["lacks_script", "script", "script_text"]


def script_text(name: str) -> bytes:
    """Return the text of a script beside this module.

    The module's loader reads it, because there is no path in a program that is one file (a zip application, or frozen).
    """
    text = get_data("singletonjob.stores.redis", name)
    if text is None:
        raise FileNotFoundError(f"{name}: singletonjob.stores.redis was loaded from where no data can be read")
    return text


@cache
def script() -> tuple[bytes, bytes]:
    """Return the script's text and its digest, which is its name on the server."""
    text = script_text("exchange.lua")
    return text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def lacks_script(reply: object) -> bool:
    """Return True if the server does not know the script, after a restart, a fail-over or a flush."""
    return isinstance(reply, Exception) and code_of(reply) == "NOSCRIPT"
