"""samples/django under gunicorn: of all workers one runs the jobs, on the ORM; and its management command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sample_image import ROOT
from waiting import wait_for
from web_servers import WebServer

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = ROOT / "samples" / "django"
MANAGE = (sys.executable, "manage.py")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sample with its tables made."""
    project = tmp_path_factory.mktemp("django") / "project"
    shutil.copytree(SAMPLE, project, ignore=shutil.ignore_patterns("__pycache__", "*.db"))
    manage(project, "migrate", "-v", "0")
    assert not (project / "leases.db").exists(), "migrate took part"
    return project


@pytest.fixture
def site(project: Path, tmp_path: Path) -> Path:
    return shutil.copytree(project, tmp_path / "site")


def manage(site: Path, *words: str) -> str:
    """What the command prints."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SINGLETONJOB_")}
    environment = {
        **inherited,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(site), *sys.path])),
        "SINGLETONJOB_STORE": f"sqlite:///{site / 'leases.db'}",
    }
    done = subprocess.run(
        [*MANAGE, *words], cwd=site, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def holders(site: Path) -> dict[str, str | None]:
    """Who leads each job, as the command tells it."""
    return {job["job"]: job["leader"] for job in json.loads(manage(site, "singletonjobs", "status", "--json"))}


def test_the_migration_of_the_sample_is_as_its_models_are(project: Path) -> None:
    assert manage(project, "makemigrations", "--check", "--dry-run") == "No changes detected\n"


def test_one_worker_of_the_sample_writes_quotes_and_releases_at_its_end(site: Path) -> None:
    words = ("gunicorn", "--bind", "127.0.0.1:{port}", "--no-control-socket", "--workers", "2", "shop.wsgi")
    with WebServer(site, "", *words, jobs="") as server:

        def index() -> Any:
            return json.loads(server.get("/"))

        wait_for(lambda: len(index()["quotes"]) > 2, what="quotes", alive=server.process)
        assert len({quote["token"] for quote in index()["quotes"]}) == 1, "more than one term wrote them"
        wait_for(lambda: index()["leads"], what="an answer of the leader", alive=server.process)
        answers = [index() for _ in range(10)]
        assert len({found["pid"] for found in answers if found["leads"]}) <= 1
        assert json.loads(server.get("/health/livez"))["live"]
        found = holders(site)
        assert set(found) == {"quote", "tidy-up", "closing"}
        assert all(found.values())
        server.stop()
        assert set(holders(site).values()) == {None}, "not released"


def test_the_management_command_runs_the_jobs_in_a_process_of_their_own(site: Path) -> None:
    with WebServer(site, "", *MANAGE, "singletonjobs", "run", jobs="") as server:
        wait_for(lambda: (site / "leases.db").exists() and holders(site).get("quote"), what="a leader")
        assert server.stop() == 0
        assert set(holders(site).values()) == {None}, "not released"
    assert "run failed" not in server.log
