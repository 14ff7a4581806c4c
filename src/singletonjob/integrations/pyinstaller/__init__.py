"""Tells PyInstaller what it cannot see of this package. It is found through the entry point `pyinstaller40`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["get_hook_dirs"]


def get_hook_dirs() -> list[str]:
    """Where the hooks are. PyInstaller calls it when it builds."""
    return [str(Path(__file__).parent)]
