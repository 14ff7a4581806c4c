"""Probes over HTTP: a port of their own (`HealthServer`), or inside a web app (`HealthASGI`, `HealthWSGI`).

All three give the same answers to the same paths, see `answer`.
"""

from __future__ import annotations

from .answers import METHODS, ROUTES, Answer, answer
from .asgi import HealthASGI
from .server import HealthServer
from .wsgi import HealthWSGI

__all__ = ["METHODS", "ROUTES", "Answer", "HealthASGI", "HealthServer", "HealthWSGI", "answer"]
