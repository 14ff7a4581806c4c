"""Say what to install where a module that comes with an extra cannot be imported."""

from __future__ import annotations

__all__ = ["not_importable"]

EXTRAS = {"opentelemetry": ("opentelemetry-api", "otel"), "prometheus_client": ("prometheus-client", "prometheus")}
"""Package -> the distribution that brings it, and our extra that installs the distribution."""


def not_importable(package: str, error: ImportError) -> str:
    """Say whether `package` is missing, or is there and fails to import something else."""
    distribution, extra = EXTRAS[package]
    if (error.name or "").partition(".")[0] == package:
        return f"needs {distribution} ({error}); write pip install 'singletonjob[{extra}]'"
    return f"cannot import {distribution}, although it is installed: {error}"
