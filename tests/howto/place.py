"""Where pages are followed: an environment with the package of this tree, a Redis server, and free ports.

A page prints the usual ports. One that is free here is used as printed; one that is taken becomes another in the whole
page, in `Ports.rewrite` and nowhere else.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REDIS_PORT", "ROOT", "Ports", "build_wheel", "fresh_environment", "own_environment"]

ROOT = Path(__file__).parents[2]

REDIS_PORT = 6379

PRINTED = (REDIS_PORT, 8000, 8001, 8081)
"""The ports that pages print."""


class Ports:
    """Which port stands for each printed one while this object is used."""

    def __init__(self) -> None:
        self.of = {port: port if _is_free(port) else free_port() for port in PRINTED}

    def rewrite(self, text: str) -> str:
        """A page as it is followed here."""
        return re.sub(r"\b\d{4}\b", lambda found: str(self.of.get(int(found[0]), found[0])), text)


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("0.0.0.0", port))  # noqa: S104 - what a page's server may bind
        except OSError:
            return False
    return True


def build_wheel(directory: Path) -> Path:
    """The wheel of this tree, built into `directory`."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(ROOT)],
        check=True,
    )
    (wheel,) = directory.glob("*.whl")
    return wheel


def fresh_environment(directory: Path, wheel: Path) -> dict[str, str]:
    """The variables of a reader with a new virtual environment that holds the wheel and what it asks for, no more.

    What else a page installs comes from the usual index. The package itself is there already: a release of the same
    name on the index is not what the page is to be tried with.
    """
    venv.create(directory / "venv", with_pip=True)
    scripts = directory / "venv" / "bin"
    subprocess.run([str(scripts / "pip"), "install", "--quiet", str(wheel)], check=True)
    cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    return _variables(directory, scripts) | {"VIRTUAL_ENV": str(scripts.parent), "PIP_CACHE_DIR": cache}


def own_environment(directory: Path) -> dict[str, str]:
    """The variables of a reader in the environment of the tests, which holds all that the pages install.

    A page that installs anything else fails: nothing is looked for on an index.
    """
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables = _variables(directory, Path(sys.executable).parent) | offline
    return {name: value for name, value in variables.items() if name != "PIP_FIND_LINKS"}


def _variables(directory: Path, scripts: Path) -> dict[str, str]:
    inherited: Mapping[str, str] = os.environ
    own = ("SINGLETONJOB_", "PYTHON", "PYTEST_", "COV_", "DJANGO_", "POD_NAME", "VIRTUAL_ENV")
    kept = {name: value for name, value in inherited.items() if not name.startswith(own)}
    home, customized = directory / "home", directory / "customized"
    home.mkdir()
    customized.mkdir()
    # The store `sqlite` lies in the home directory of the user database, whatever HOME says.
    (customized / "sitecustomize.py").write_text(
        f"import pwd\nreal = pwd.getpwuid\n"
        f"pwd.getpwuid = lambda user: pwd.struct_passwd((*real(user)[:5], {str(home)!r}, '/bin/sh'))\n"
    )
    return kept | {
        "PATH": os.pathsep.join([str(scripts), inherited.get("PATH", os.defpath)]),
        "HOME": str(home),
        "PYTHONPATH": str(customized),
        "PYTHONUNBUFFERED": "1",  # as in a terminal
        "COLUMNS": "120",
        "LC_ALL": "C.UTF-8",
    }
