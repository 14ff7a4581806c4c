"""`singletonjob run MODULE:APP`: the jobs of an app, until a signal ends them."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

from .._core.errors import ConfigError
from .._reporting.log_writer import write
from . import logs
from .loading import app_arguments, load_app, store_arguments

if TYPE_CHECKING:
    from .._app import SingletonJobs

__all__ = ["arguments"]

EXAMPLE = """\
examples:
  singletonjob run jobs:app
  singletonjob run jobs:app --store sqlite --log-format json
  singletonjob run jobs:app --health 0.0.0.0:8081
  opentelemetry-instrument singletonjob run jobs:app --otel
  singletonjob run pricing.jobs:make_app --factory --app-dir src

SIGTERM or Ctrl-C: runs in flight may end, leases are released, exit code 0;
1 if a run did not stop. A second signal ends the process at once.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes."""
    parser.epilog = EXAMPLE
    parser.add_argument("app", metavar="MODULE:APP", help="where the SingletonJobs object is, for example jobs:app")
    app_arguments(parser)
    store_arguments(parser)
    parser.add_argument(
        "--health",
        metavar="HOST:PORT",
        type=_address,
        help="serve /livez, /readyz, /healthz and /metrics, e.g. 0.0.0.0:8081; port 0: any, the log names it",
    )
    parser.add_argument("--otel", action="store_true", help="metrics and traces through OpenTelemetry; see the example")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log lines on stderr (text)")
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info", help="the lowest level shown (info)")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> int:
    """Load the app and run it; returns when it has drained. Raises `ConfigError`, and what `app.run()` raises."""
    logs.set_up(options.log_format, options.log_level)
    app = load_app(options.app, app_dir=options.app_dir, factory=options.factory)
    app.configure(project=options.project, store=options.store)
    if options.otel:
        from ..telemetry import instrument

        instrument(app)
    if options.health is not None:
        _serve_health(app, *options.health)
    app.run()
    return 0


def _serve_health(app: SingletonJobs, host: str, port: int) -> None:
    from ..probes.server import HealthServer

    shown = f"[{host}]" if ":" in host else host
    try:
        port = HealthServer(app, host, port).start()
    except OSError as error:
        raise ConfigError(f"--health: cannot listen on {shown}:{port}: {error.strerror or error}") from error
    write(logging.INFO, "health-served", f"health is served on http://{shown}:{port}")


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    bare = ":" in host and not host.startswith("[")  # of IPv6, and one could not tell where the port begins
    if not colon or bare or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address; write HOST:PORT, for example 0.0.0.0:8081 or [::]:8081"
        )
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)  # noqa: S104 - `:8081`: all of IPv4
