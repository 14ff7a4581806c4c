# ruff: noqa: N999 - PyInstaller finds a hook by this name
"""What a frozen program needs beside the modules that are imported: the scripts of the Redis store, and zone data.

zoneinfo reads tzdata by name where the system has no zone files, so no import leads to it. The metadata are for
`singletonjob --version`; who installed none builds without.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError

from PyInstaller.utils.hooks import collect_data_files, copy_metadata

datas: list[tuple[str, str]] = collect_data_files("singletonjob", includes=["**/*.lua"]) + collect_data_files("tzdata")
hiddenimports: list[str] = ["tzdata"]

with suppress(PackageNotFoundError):
    datas += copy_metadata("singletonjob")
