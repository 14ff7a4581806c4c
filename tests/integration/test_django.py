"""A Django project: what serves takes part, what only manages never does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from postgres import Connections, postgres
from waiting import wait_for
from web_servers import JOBS, WebServer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""

SETTINGS = """
import os
SECRET_KEY = "x"
ALLOWED_HOSTS = ["*"]
DEBUG = True
ROOT_URLCONF = "urls"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "singletonjob.integrations.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}
SINGLETONJOB = {"APP": "jobs:jobs"}
"""

URLS = """
from django.http import HttpResponse
from django.urls import path
from jobs import jobs
urlpatterns = [path("", lambda request: HttpResponse(f"{os.getpid()} {jobs.is_leader('tick')}"))]
import os
"""

WSGI = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.wsgi import get_wsgi_application
app = get_wsgi_application()
"""

ASGI = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.asgi import get_asgi_application
from singletonjob.integrations.django.asgi import with_jobs
app = with_jobs(get_asgi_application())
"""

WITH_DATABASE = (
    JOBS
    + """
def count_users():
    from django.contrib.auth.models import User
    from django.db import connection
    open_before = connection.connection is not None
    try:
        users = User.objects.count()
    except Exception as error:
        users = repr(error)
    with open("database", "a") as file:
        file.write(f"{open_before} {users}\\n")
jobs.fixed_rate("100ms", name="users")(count_users)
"""
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in (("manage.py", MANAGE), ("settings.py", SETTINGS), ("urls.py", URLS), ("jobs.py", JOBS)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def database() -> Generator[tuple[str, str]]:
    """A PostgreSQL server that drops a connection which is idle for 200 ms: its URI and its socket's directory."""
    with postgres(idle=0.2) as found:
        yield found


def environment(site: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(site), *sys.path])),
        "SINGLETONJOB_STORE": f"sqlite:///{site / 'leases.db'}",
    }


def manage(site: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=site,
        env=environment(site),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_c17_what_only_manages_the_site_never_starts_the_jobs(site: Path) -> None:
    script = "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'; import django; django.setup()"
    for words in (
        ("manage.py", "migrate", "-v", "0"),
        ("manage.py", "check"),
        ("manage.py", "shell", "-c", "import time; time.sleep(0.3)"),
        ("-c", f"{script}; import time; time.sleep(0.3)"),
    ):
        begun = time.monotonic()
        manage(site, *words)
        assert time.monotonic() - begun < 10  # the case says 2 s
        assert not (site / "leases.db").exists(), words
        assert not (site / "runs").exists()


@pytest.mark.parametrize(
    ("web", "words"),
    [
        (WSGI, ("gunicorn", "--bind", "127.0.0.1:{port}", "--no-control-socket", "-w", "2", "--preload", "web:app")),
        (ASGI, ("uvicorn", "--port", "{port}", "web:app")),
        (ASGI, ("daphne", "-b", "127.0.0.1", "-p", "{port}", "web:app")),
        ("", (sys.executable, "manage.py", "runserver", "127.0.0.1:{port}")),
    ],
    ids=["gunicorn preload", "uvicorn", "daphne", "runserver"],
)
def test_c17_a_process_that_serves_runs_the_jobs_and_releases_at_its_end(
    web: str, words: tuple[str, ...], site: Path
) -> None:
    with WebServer(site, web, *words) as server:
        server.get()
        runs = server.until_it_ran()
        assert len({run.pid for run in runs}) == 1
        forks = "--preload" in words or "runserver" in words
        assert (runs[0].pid != server.process.pid) == forks
        if "runserver" in words:
            os.kill(runs[0].pid, signal.SIGTERM)  # the reloader's parent passes nothing on
            wait_for(lambda: server.holder() is None, what="the release")
        else:
            server.stop()
            assert server.holder() is None


def test_the_management_command_runs_the_jobs_until_a_signal_and_shows_who_leads(site: Path) -> None:
    with WebServer(site, "", sys.executable, "manage.py", "singletonjobs", "run", jobs=WITH_DATABASE) as server:
        runs = server.until_it_ran()
        assert {run.pid for run in runs} == {server.process.pid}
        shown = manage(site, "manage.py", "singletonjobs", "status").stdout
        assert runs[-1].node in next(line for line in shown.splitlines() if line.startswith("tick "))
        assert server.stop() == 0
        assert server.holder() is None
    assert len({run.pid for run in server.runs()}) == 1, "status ran it"


def test_c112_no_connection_is_open_before_a_sync_run_and_one_that_broke_is_made_anew(site: Path) -> None:
    with WebServer(site, "", sys.executable, "manage.py", "singletonjobs", "run", jobs=WITH_DATABASE) as server:

        def seen() -> list[list[str]]:
            return [line.split(" ", 1) for line in (site / "database").read_text().splitlines()]

        wait_for(lambda: (site / "database").exists() and len(seen()) > 1, what="a run without a table")
        assert all("no such table" in answer for _, answer in seen()[:2])
        manage(site, "manage.py", "migrate", "-v", "0")
        wait_for(lambda: len([1 for _, answer in seen() if answer == "0"]) > 2, what="runs that count")
        assert {was_open for was_open, _ in seen()} == {"False"}
        server.stop()


DROPPED = JOBS.replace('os.environ.get("EVERY", "100ms")', 'os.environ["PERIOD"]').replace(
    "    with open",
    """    from django.contrib.auth.models import User
    from django.db import connection
    assert User.objects.count() == 0
    with open""",
)


def test_c112_a_database_that_drops_idle_connections_costs_no_run_and_one_connection_at_most(
    database: tuple[str, str], site: Path
) -> None:
    uri, host = database
    engine = f"ENGINE='django.db.backends.postgresql', HOST='{host}', USER='site', NAME='postgres'"
    options = "OPTIONS={'application_name': 'site'}"
    (site / "settings.py").write_text(
        SETTINGS + f"DATABASES = {{'default': dict({engine}, {options}, CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)}}\n"
    )
    manage(site, "manage.py", "migrate", "-v", "0")
    connections = Connections(uri, "site")
    words = (sys.executable, "manage.py", "singletonjobs", "run")
    with WebServer(site, "", *words, jobs=DROPPED, environment={"PERIOD": "400ms"}) as server:
        most = 0
        while len(server.runs()) < 4:
            most = max(most, connections())
            assert server.process.poll() is None
            time.sleep(0.02)
        assert server.stop() == 0
        assert "run failed" not in server.log
        assert most <= 1
    connections.close()
    ticks = [run.tick for run in server.runs()]
    assert len(set(ticks)) == len(ticks)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("None", 'write SINGLETONJOB = {"APP": "shop.jobs:app"}'),
        ('{"APP": "nowhere:app"}', "there is no module 'nowhere'"),
        ('{"APP": "jobs:absent"}', "jobs has no 'absent'; did you mean 'jobs'?"),
        ('{"APP": "jobs:jobs", "STROE": "memory"}', "unknown STROE"),
    ],
)
def test_settings_that_cannot_be_used_are_told_in_one_line(setting: str, said: str, site: Path) -> None:
    (site / "settings.py").write_text(SETTINGS + f"SINGLETONJOB = {setting}\n")
    program = "from django.core.management import call_command; import django; django.setup()"
    settings = "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'"
    done = subprocess.run(
        [sys.executable, "-c", f"{settings}; {program}; call_command('singletonjobs', 'status')"],
        cwd=site,
        env=environment(site),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1]


STORE_IN_SETTINGS = SETTINGS + "SINGLETONJOB = {'APP': 'jobs:jobs', 'STORE': 'sqlite:///own.db'}\n"
USES_MODELS = "from django.contrib.auth.models import User\n" + JOBS


def without_store(site: Path) -> dict[str, str]:
    given = {name: value for name, value in environment(site).items() if name != "SINGLETONJOB_STORE"}
    return {**given, "DJANGO_SETTINGS_MODULE": "settings"}


def plain(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The plain command, in the project's directory, with nothing but DJANGO_SETTINGS_MODULE."""
    return subprocess.run(
        [sys.executable, "-m", "singletonjob", *words],
        cwd=site,
        env=without_store(site),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_verb_is_a_verb_of_the_management_command(site: Path) -> None:
    (site / "settings.py").write_text(STORE_IN_SETTINGS)
    (site / "jobs.py").write_text(USES_MODELS)

    def verb(*words: str, code: int = 0) -> str:
        return manage(site, "manage.py", "singletonjobs", *words, code=code).stdout

    assert "paused until 20" in verb("pause", "tick", "--for", "1h", "--settings=settings")
    assert "tick" in verb("status")
    assert "not done: it is paused by" in verb("trigger", "tick", code=1)
    assert "resumed; it was paused by" in verb("resume", "tick")
    assert "sqlite:///own.db" in verb("check")
    assert "tick" in verb("next", "--count", "1")
    assert verb("step-down", "tick", code=1) == "tick: nobody leads it now\n"
    assert "the app has the job tick" in manage(site, "manage.py", "singletonjobs", "forget", "tick", code=2).stderr


def test_the_plain_command_sets_django_up_and_takes_the_store_from_its_settings(site: Path) -> None:
    (site / "settings.py").write_text(STORE_IN_SETTINGS)
    (site / "jobs.py").write_text(USES_MODELS)
    done = plain(site, "pause", "jobs:jobs", "tick")
    assert (done.returncode, done.stderr) == (0, "")
    assert (site / "own.db").exists()
    assert "paused 0 s ago" in plain(site, "status", "jobs:jobs").stdout
    (site / "settings.py").write_text("SECRET_KEY = 'x'\nINSTALLED_APPS = ['nowhere']\n")
    done = plain(site, "status", "jobs:jobs")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Django cannot be set up with settings: ModuleNotFoundError: No module named 'nowhere'" in done.stderr


def test_no_command_of_ours_starts_the_jobs_where_django_starts_them_everywhere(site: Path) -> None:
    (site / "settings.py").write_text(SETTINGS + "SINGLETONJOB = {'APP': 'jobs:jobs', 'START': True}\n")
    manage(site, "manage.py", "singletonjobs", "check")
    assert not (site / "runs").exists()
    manage(site, "manage.py", "singletonjobs", "next")
    assert list(site.glob("leases.db-holder-*")) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("None", "singletonjob.E001"),
        ('{"APP": "jobs:jobs", "STROE": "memory"}', "singletonjob.E002"),
        ('{"APP": "jobs:jobs", "START": "yes"}', "singletonjob.E002"),
        ('{"APP": "nowhere:app"}', "singletonjob.E003"),
        ('{"APP": "jobs:os"}', "singletonjob.E003"),
    ],
)
def test_a_mistake_in_the_settings_is_an_error_of_djangos_system_check(setting: str, said: str, site: Path) -> None:
    (site / "settings.py").write_text(SETTINGS + f"SINGLETONJOB = {setting}\n")
    done = manage(site, "manage.py", "makemigrations", "--dry-run", code=1)
    assert f"({said})" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_store_is_a_warning_of_djangos_system_check(site: Path) -> None:
    (site / "settings.py").write_text(SETTINGS)
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=site,
        env=without_store(site),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert "(singletonjob.W001) store: missing or blank" in done.stderr
