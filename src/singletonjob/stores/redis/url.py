"""The common parts of the URLs of all Redis stores, parsed and checked without a connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from ..._core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["UrlParts", "database_of", "malformed", "url_parts"]

TLS = ("rediss", "valkeys")
"""The beginnings of the schemes with TLS."""

SSL = frozenset({"ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile"})
"""The query keys of a URL with TLS. Time-outs and retries are not allowed, because the election sets its own."""

CERT_REQS = ("required", "optional", "none")
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlParts:
    """The parts of a URL, percent-decoded except for `path`. A part that is not there is empty or None.

    `hosts` has at least one item. `tls` is as in `Address`; `query` holds the other keys of the query.
    """

    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    query: Mapping[str, str] = field(repr=False)  # may hold a password
    username: str | None
    password: str | None = field(repr=False)
    tls: Mapping[str, str | bool] | None


def url_parts(url: str, *, known: Collection[str], example: str) -> UrlParts:
    """Return the parts of a URL of any Redis store, with one host or more, separated by commas.

    `known` holds the query keys besides those for TLS, and `example` is a good URL for the error's text. Raises
    `ConfigError`; its text never shows what may be a password.
    """
    try:
        parts = urlsplit(url.strip())
        _, _, hosts = parts.netloc.rpartition("@")
        split = [urlsplit(f"//{host}") for host in hosts.split(",")]
        found = tuple((unquote(one.hostname or ""), one.port) for one in split)
    except ValueError:  # its text may quote a password
        raise malformed("host or port cannot be read", example) from None
    scheme = parts.scheme.lower()
    if not url.strip()[len(scheme) :].startswith("://"):
        raise malformed(f"there is no // after {scheme}:", example)
    if "@" in f"{parts.path}{parts.query}" or "#" in url:
        raise malformed("a user name or password has a sign that must be percent-encoded", example)
    if len(found) > 1 and not all(host for host, _ in found):
        raise malformed("a host between two commas is empty", example)
    query = _query(parts.query, known)
    tls = {key: _ssl(key, query.pop(key)) for key in SSL & query.keys()}
    if tls and not scheme.startswith(TLS):
        _, plus, kind = scheme.partition("+")
        raise ConfigError(
            f"store: {min(tls)} is only for TLS; write rediss{plus}{kind}:// in front of the URL, or leave it out"
        )
    return UrlParts(
        scheme=scheme,
        hosts=found,
        path=parts.path,
        query=query,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=tls if scheme.startswith(TLS) else None,
    )


def database_of(text: str, *, example: str) -> int:
    """Return the number of a database, 0 if `text` is empty. Raises `ConfigError`."""
    if not set(text) <= DIGITS or len(text) > 9:
        raise ConfigError(f"store: {text!r} is no database number; write {example}")
    return int(text or 0)


def _query(text: str, known: Collection[str]) -> dict[str, str]:
    # A plus sign means a plus sign here, because it is common in passwords and paths.
    pairs = dict(parse_qsl(text.replace("+", "%2B"), keep_blank_values=True))
    unknown = pairs.keys() - SSL - set(known)
    if unknown:
        names = ", ".join(sorted({*SSL, *known}))
        raise ConfigError(f"store: {min(unknown)!r} in the query of a Redis URL is not known; known are {names}")
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


def malformed(why: str, example: str) -> ConfigError:
    """Return the error for a URL that does not have the form of `example`."""
    return ConfigError(
        f"store: {why}; write {example},"
        " in user and password @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, [ as %5B, % as %25"
    )
