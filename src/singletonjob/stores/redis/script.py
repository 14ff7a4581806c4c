"""The scripts that a server runs: the one that carries out requests, and others by name."""

from __future__ import annotations

import hashlib
from functools import cache
from pkgutil import get_data

from .errors import code_of

__all__ = ["lacks_script", "script", "script_text"]


def script_text(name: str) -> bytes:
    """The text of a script that lies beside this module.

    Through the module's loader: a path leads nowhere where the program is one file (a zip application, or frozen).
    """
    text = get_data("singletonjob.stores.redis", name)
    if text is None:
        raise FileNotFoundError(f"{name}: singletonjob.stores.redis was loaded from where no data can be read")
    return text


@cache
def script() -> tuple[bytes, bytes]:
    """The script's text, and its name on the server."""
    text = script_text("exchange.lua")
    return text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def lacks_script(reply: object) -> bool:
    """Whether a server answers that it knows no script of that name: it was restarted, failed over or flushed."""
    return isinstance(reply, Exception) and code_of(reply) == "NOSCRIPT"
