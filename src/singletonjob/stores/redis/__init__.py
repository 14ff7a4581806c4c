"""Leases in Redis or Valkey: one server, one that Sentinels name, or a Cluster."""

from __future__ import annotations

from .store import RedisStore, address_from_url

__all__ = ["RedisStore", "address_from_url"]
