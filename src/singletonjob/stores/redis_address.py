"""Where a Redis store is: what its URL says, read and checked without a connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from .._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Address", "address_from_url"]

TLS = frozenset({"rediss", "valkeys"})

QUERY = frozenset({"db", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile"})
"""What may stand behind the `?`. Time-outs and retries may not: the election sets its own."""

CERT_REQS = ("required", "optional", "none")
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server and who to be there. `path`: of a Unix socket; `tls`: redis-py's `ssl_` options, None without TLS."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, str | bool] | None = None

    def __str__(self) -> str:
        return f"{self.path or f'{self.host}:{self.port}'}, database {self.db}"


def address_from_url(url: str) -> Address:
    """Read `redis://user:password@host:6379/0`, or the same with `rediss`, `valkey` or `valkeys` in front, or
    `unix://user:password@/path/to/socket?db=0`. Each part but the scheme may be left out; user and password are
    percent-decoded once. The query may set `db` and, with TLS, redis-py's `ssl_ca_certs`, `ssl_certfile`,
    `ssl_keyfile`, `ssl_cert_reqs` and `ssl_check_hostname`.

    Raises `ConfigError`; its text never holds what might be a password.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:  # its text may quote a password
        raise _malformed("host or port cannot be read") from None
    scheme = parts.scheme.lower()
    if not url.strip()[len(scheme) :].startswith("://"):
        raise _malformed(f"there is no // after {scheme}:")
    if "@" in f"{parts.path}{parts.query}" or "#" in url:
        raise _malformed("a user name or password has a sign that must be percent-encoded")
    query = _query(parts.query)
    tls: dict[str, str | bool] = {key: _ssl(key, value) for key, value in query.items() if key != "db"}
    if tls and scheme not in TLS:
        raise ConfigError(f"store: {min(tls)} is only for TLS; write rediss:// in front of the URL, or leave it out")
    database = query.get("db", "")
    path = ""
    if scheme == "unix":
        path = unquote(parts.path)
        if host or not path:
            raise ConfigError("store: a unix URL needs an absolute path; write unix:///path/to/socket?db=0")
    else:
        database = database or parts.path.removeprefix("/")
    if not set(database) <= DIGITS or len(database) > 9:
        raise ConfigError(f"store: {database!r} is no database number; write redis://host:6379/0")
    return Address(
        host=unquote(host or "localhost"),
        port=port or 6379,
        path=path,
        db=int(database or 0),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=tls if scheme in TLS else None,
    )


def _query(text: str) -> dict[str, str]:
    pairs = dict(parse_qsl(text, keep_blank_values=True))
    unknown = pairs.keys() - QUERY
    if unknown:
        raise ConfigError(
            f"store: {min(unknown)!r} in the query of a Redis URL is not known; known are {', '.join(sorted(QUERY))}"
        )
    return pairs


def _ssl(key: str, value: str) -> str | bool:
    if key == "ssl_check_hostname":
        if value.lower() not in BOOLEANS:
            raise ConfigError(f"store: {key} is {value!r}; write true or false")
        return BOOLEANS[value.lower()]
    if key == "ssl_cert_reqs" and value not in CERT_REQS:
        raise ConfigError(f"store: {key} is {value!r}; write one of {', '.join(CERT_REQS)}")
    if not value:
        raise ConfigError(f"store: {key} is empty; write the path of a file")
    return value


def _malformed(why: str) -> ConfigError:
    return ConfigError(
        f"store: {why}; write redis://user:password@host:6379/0,"
        " in user and password @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, [ as %5B, % as %25"
    )
