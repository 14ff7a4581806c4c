"""Translate the store URLs of other tools into ours."""

from __future__ import annotations

import re

__all__ = ["advice_on_url"]

PLAIN = "redis://host:6379/0"
TLS = "rediss://host:6379/0"
SOCKET = "unix:///path/to/socket?db=0"
SENTINEL = "redis+sentinel://host1:26379,host2:26379/service/0"
CLUSTER = "redis+cluster://host1:6379,host2:6379"
FILE = "sqlite:////absolute/path/leases.db"

SCHEMES = {
    **dict.fromkeys(("redis+socket", "redis-socket", "redis+unix", "redis-unix", "unix+redis", "redis+uds"), SOCKET),
    **dict.fromkeys(("sentinel", "sentinels", "redis-sentinel", "sentinel+redis", "redissentinel"), SENTINEL),
    **dict.fromkeys(("rediscluster", "redis-cluster", "redis_cluster", "cluster", "redisscluster"), CLUSTER),
    **dict.fromkeys(("redis+tls", "redis-tls", "redis+ssl", "redis-ssl", "redistls", "tls", "ssl"), TLS),
    **dict.fromkeys(("aioredis", "redis+async", "redis+asyncio", "async+redis", "coredis", "redis+tcp", "tcp"), PLAIN),
    **dict.fromkeys(("keydb", "dragonfly", "redis-py", "redispy", "db+redis", "sqla+redis"), PLAIN),
    **dict.fromkeys(("sqlite3", "file", "aiosqlite", "sqlite+aiosqlite", "sqlite+pysqlite", "db+sqlite"), FILE),
    **dict.fromkeys(("sqla+sqlite", "sqlalchemy", "peewee", "django-db"), FILE),
    **dict.fromkeys(("memory", "inmemory", "in-memory", "locmem", "locmemcache", "cache+memory", "stub"), "memory"),
}
"""Schemes of Celery, kombu, rq, dramatiq, django-redis, aiocache, arq, SQLAlchemy and others, in lower case."""

HOST = re.compile(r"[\w.-]+(?::\d+)?(?:/\d*)?")


def advice_on_url(url: str) -> str | None:
    """Return what to write instead of the store URL of another tool; None if no known tool uses such a URL."""
    text = url.strip()
    scheme, found, _ = text.partition("://")
    if found:
        if scheme.lower() in ("http", "https"):
            return f"that is an address of HTTP; write the one for Redis clients, {TLS}"
        good = SCHEMES.get(scheme.lower())
        return None if good is None else f"that is the form of another tool; write {good}"
    if text.lower() in SCHEMES:
        return f"write {SCHEMES[text.lower()]}"
    if text.endswith((".db", ".sqlite", ".sqlite3")):
        return f"a file needs its scheme; write sqlite:///{text}"
    if HOST.fullmatch(text) and (":" in text or "." in text or text == "localhost"):
        return f"a server needs its scheme; write redis://{text}"
    return None
