"""samples/compose: the file is one that Compose takes, the recipe is small and safe, and what it makes hands over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from sample_image import ROOT, Image, build, instructions, longest_stop, stages, worker_app
from servers import OLDEST, Server, free_port
from singletonjob._jobs.duration import duration
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

SAMPLE = ROOT / "samples" / "compose"
SCRIPTS = Path(sysconfig.get_path("scripts"))
FAST = {
    "SINGLETONJOB_LOCK_EXPIRY": "3s",
    "SINGLETONJOB_HEARTBEAT_INTERVAL": "1s",
    "SINGLETONJOB_AMNESIA_GUARD": "false",  # the server of a test has just been started, and lost nothing
}


class Tick(NamedTuple):
    """One run of `price-tick`, as the body told it."""

    tick: int
    node: str
    token: int


class Process:
    """One or more workers with one log; the whole session is killed at the end of the block."""

    def __init__(self, words: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                words,
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if kind is not None:
            sys.stderr.write(self.log())  # pytest shows it with the failure

    def log(self) -> str:
        return self._log.read_text()

    def ticks(self) -> list[Tick]:
        found = re.findall(r"price-tick (\d+) on (\S+), token (\d+)", self.log())
        return [Tick(int(tick), node, int(token)) for tick, node, token in found]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def composed() -> Any:
    """The file, as data."""
    return yaml.safe_load((SAMPLE / "compose.yaml").read_text())


@pytest.mark.parametrize("wrong", [False, True], ids=["as it is", "with a slip"])
def test_the_file_is_valid_by_the_schema_of_compose_and_a_slip_would_not_be(wrong: bool, tmp_path: Path) -> None:
    text = (SAMPLE / "compose.yaml").read_text()
    file = tmp_path / "compose.yaml"
    file.write_text(text.replace("stop_grace_period", "stop_grace") if wrong else text)
    command = [str(SCRIPTS / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == wrong, done.stdout + done.stderr
    assert ("stop_grace" in done.stdout) == wrong


def test_compose_starts_three_workers_that_any_number_can_be_made_of(composed: Any) -> None:
    worker = composed["services"]["worker"]
    assert worker["deploy"]["replicas"] == 3
    # With either of these, `--scale worker=3` fails: each worker would want the same name, or the same port.
    assert "container_name" not in worker
    assert "ports" not in worker
    redis = composed["services"]["redis"]
    assert "ports" not in redis, "a Redis without a password must not be reached from outside"
    assert worker["environment"] == {"SINGLETONJOB_STORE": "redis://redis:6379/0"}


def test_compose_gives_a_worker_more_time_to_stop_than_it_takes_at_most(
    composed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = composed["services"]["worker"]
    for name, value in worker["environment"].items():
        monkeypatch.setenv(name, value)
    assert duration(worker["stop_grace_period"], "stop_grace_period") > longest_stop(worker_app())


def test_compose_starts_the_worker_of_the_image_as_process_1_without_rights_that_it_does_not_need(
    composed: Any,
) -> None:
    worker = composed["services"]["worker"]
    assert not {"entrypoint", "command", "init", "user", "privileged"} & worker.keys()
    assert worker["read_only"]
    assert worker["cap_drop"] == ["ALL"]
    (last,) = (one for one in stages(instructions())[-1] if one.word == "HEALTHCHECK")
    assert worker["healthcheck"]["test"] == ["CMD", *last.exec_form]
    assert (SAMPLE / worker["build"]["context"]).resolve() == ROOT
    assert ROOT / worker["build"]["dockerfile"] == SAMPLE / "Dockerfile"


def test_the_recipe_has_no_finding_of_the_linter() -> None:
    done = subprocess.run([SCRIPTS / "hadolint", SAMPLE / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


def test_the_recipe_is_slim_builds_apart_compiles_all_bytecode_and_ends_as_a_user_that_owns_nothing() -> None:
    first, last = stages(instructions())
    assert all(re.fullmatch(r"python:3\.\d+-slim( AS \w+)?", stage[0].rest) for stage in (first, last))
    assert first[0].rest.removesuffix(" AS build") == last[0].rest, "the interpreter is another one"
    copied = [one.rest for one in last if one.word in {"COPY", "ADD"}]
    assert copied == ["--from=build /opt/app /opt/app"], "something of the build is in the image, or owned by its user"
    compiled = first[-1]
    assert compiled.word == "RUN"
    assert "compileall" in compiled.rest
    assert "unchecked-hash" in compiled.rest
    words = [one.word for one in last]
    (user,) = (one.rest for one in last if one.word == "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "Kubernetes cannot see of a name that it is not root"
    assert words.index("USER") < words.index("ENTRYPOINT")
    (entrypoint,) = (one for one in last if one.word == "ENTRYPOINT")
    assert entrypoint.exec_form[:2] == ["singletonjob", "run"]
    assert entrypoint.rest.startswith("["), "behind a shell"


def test_the_context_of_the_build_is_a_list_of_what_goes_in() -> None:
    lines = (SAMPLE / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {source for one in stages(instructions())[0] if one.word == "COPY" for source in one.rest.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / source).exists() for source in copied)


def test_p64_of_three_workers_of_the_image_one_runs_the_jobs_and_another_takes_over(
    image: Image, tmp_path: Path
) -> None:
    files = {path: path.stat().st_mtime_ns for path in image.app.rglob("*")}
    with Server(OLDEST, tmp_path) as server, ExitStack() as stack:
        environment = {**image.environment, **FAST, "SINGLETONJOB_STORE": server.url}
        ports = [free_port() for _ in range(3)]
        workers = [
            stack.enter_context(
                Process(
                    image.run("--health", f"127.0.0.1:{port}"),
                    image.working_directory,
                    tmp_path / f"{port}.log",
                    environment,
                )
            )
            for port in ports
        ]
        wait_for(lambda: all("health is served" in one.log() for one in workers), what="three starts")
        left = list(workers)
        terms: list[int] = []
        for number in (signal.SIGKILL, signal.SIGTERM):
            wait_for(lambda: any(len(one.ticks()) > 1 for one in left), what="a leader")
            leader = max((one for one in left if one.ticks()), key=lambda one: one.ticks()[-1])
            terms.append(leader.ticks()[-1].token)
            for port in (port for port, one in zip(ports, workers, strict=True) if one in left):
                asked = subprocess.run(image.checked(port), env=environment, capture_output=True, check=False)
                assert asked.returncode == 0, asked.stderr
            leader.process.send_signal(number)
            assert leader.process.wait(20) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
            left.remove(leader)
        (last,) = left
        wait_for(lambda: len(last.ticks()) > 1, what="the last one's turn")
        terms.append(last.ticks()[-1].token)
        assert terms == sorted(set(terms)), "a later term has a greater token"
        ran = [tick.tick for one in workers for tick in one.ticks()]
        assert len(set(ran)) == len(ran)
        last.process.terminate()
        assert last.process.wait(20) == 0
        with server.client() as client:
            assert not client.exists("pricing:price-tick:lock"), "not released"
    after = {path: path.stat().st_mtime_ns for path in image.app.rglob("*")}
    assert after == files, "a worker wrote where its file system is read-only"


def test_all_code_of_the_image_has_bytecode_that_no_start_looks_behind(image: Image) -> None:
    sources = list(image.app.rglob("*.py"))
    assert len(sources) > 200
    for source in sources:
        (compiled,) = (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")
        flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
        assert flags == 0b01, f"{source.name}: by hash, unchecked (PEP 552)"


@pytest.mark.parametrize("ending", ["SIGTERM to the script", "Ctrl-C in its terminal"])
def test_p64_the_script_runs_three_local_processes_until_it_is_stopped(ending: str, tmp_path: Path) -> None:
    environment = {
        "PATH": os.pathsep.join([str(SCRIPTS), os.defpath]),
        "SINGLETONJOB_STORE": f"sqlite:///{tmp_path / 'leases.db'}",
    }
    with Process(["sh", str(SAMPLE / "local")], tmp_path, tmp_path / "log", environment) as script:
        wait_for(lambda: script.log().count("price-tick: started") == 3, what="three starts", alive=script.process)
        wait_for(script.ticks, what="a run", alive=script.process)
        pids = dict(re.findall(r"(worker-\d) is process (\d+)", script.log()))
        assert len(pids) == 3
        first = script.ticks()[-1].node
        os.kill(int(pids[first.rpartition("-")[0]]), signal.SIGKILL)
        wait_for(lambda: script.ticks()[-1].node != first, what="a run elsewhere", alive=script.process)
        begun = time.monotonic()
        if ending == "SIGTERM to the script":
            script.process.terminate()
        else:
            os.killpg(script.process.pid, signal.SIGINT)
        assert script.process.wait(30) == 0
        assert time.monotonic() - begun < 20
        led, released = (script.log().count(f"price-tick: {what}") for what in ("became LEADER", "leadership released"))
        assert released == led - 1, "all but the killed one"
        for pid in pids.values():
            assert not Path("/proc", pid).exists(), "left behind"


def test_the_script_fails_where_no_worker_can_start(tmp_path: Path) -> None:
    environment = {"PATH": os.pathsep.join([str(SCRIPTS), os.defpath]), "SINGLETONJOB_STORE": "nonsense"}
    done = subprocess.run(["sh", str(SAMPLE / "local")], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("nonsense") == 3
