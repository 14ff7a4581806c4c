"""Which version of singletonjob runs here: read when somebody wants to know, since metadata take long to find.

The installed distribution is the one place that tells; no build writes the number into a source of the package.
"""

from __future__ import annotations

__all__ = ["UNKNOWN", "__version__"]

UNKNOWN = "0+unknown"
"""Where the package has no metadata: in a zip application, in a frozen program without them, in a bare source tree."""

__version__: str
"""The version of the installed distribution, by PEP 440; `UNKNOWN` where there is none."""


def __getattr__(name: str) -> object:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("singletonjob")
    except PackageNotFoundError:
        return UNKNOWN
