"""docs/runbook.md against the program: each command, event, metric and figure; and some of its chapters, played."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from servers import OLDEST, Server
from singletonjob import SingletonJobs
from singletonjob._jobs.options import resolve, resolve_app
from singletonjob.cli import COMMANDS, Parser, main
from singletonjob.cli.logs import JsonFormatter
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "runbook.md").read_text()
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
INLINE = re.findall(r"`([^`\n]+)`", PROSE)
LOCK = "pricing:price-tick:lock"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


LINES = [line for block in blocks("sh") for line in block.splitlines()]


def spoken(program: str) -> list[list[str]]:
    """The arguments of each documented call of a program, up to a pipe or a redirection."""
    lines = [*LINES, *(code for code in INLINE if not re.match(r"singletonjob \S+:( |$)", code))]
    calls = [shlex.split(re.split(r" \| | 2> ", line)[0]) for line in lines if line.startswith(f"{program} ")]
    return [words[1:] for words in calls]


# -- the page against the program ------------------------------------------------------------------------------------


def test_every_line_of_a_shell_block_is_one_of_the_kinds_that_are_checked_here() -> None:
    strange = [line for line in LINES if not re.match(r"(singletonjob|redis-cli|events|export) |events\(\) ", line)]
    assert strange == []
    assert len(LINES) > 30


@pytest.mark.parametrize("words", spoken("singletonjob"), ids=" ".join)
def test_every_command_parses_and_its_help_names_each_option(words: list[str]) -> None:
    parser = Parser(prog=words[0])
    COMMANDS[words[0]][1](parser)
    assert parser.parse_args(words[1:]).handler is not None
    for option in (word for word in words if word.startswith("--")):
        assert option in parser.format_help()


def test_every_event_is_in_the_table_of_log_lines() -> None:
    rows = re.findall(r"^\| [A-Z]+ \| (.+?) \|", (DOCS / "logs.md").read_text(), re.MULTILINE)
    known = {event for row in rows for event in re.findall(r"`(.+?)`", row)}
    asked = {event for line in LINES if line.startswith("events ") for event in line.split()[1:]}
    named = {code for code in INLINE if re.fullmatch(r"[a-z]+(-[a-z]+)+", code)}
    assert asked - known == set()
    assert named - known == {"step-down", "redis-cli", "min-replicas-to-write"}
    assert len(asked) > 15


def test_every_metric_label_and_value_is_on_the_page_of_metrics() -> None:
    metrics = (DOCS / "metrics.md").read_text()
    kinds = dict(re.findall(r"^\| `\S+` \| `(\S+)` \| (\w+) \|", metrics, re.MULTILINE))
    queries = "".join(blocks("promql"))
    used = re.findall(r"singletonjob_\w+", queries + PROSE)
    assert len(set(used)) >= 9
    for name in used:
        assert kinds.get(name) or kinds.get(name.removesuffix("_bucket")) == "histogram", name
    labels = {label for group in re.findall(r"by \((.*?)\)", queries) for label in group.split(", ")}
    assert labels == {"project", "job_name", "reason", "cause", "le"}
    values = set(re.findall(r'(\w+)="(\w+)"', queries))
    assert values == {("project", "pricing"), ("reason", "stuck")}
    assert all(f"`{value}`" in metrics for value in ("stuck", "barred"))


def test_every_cause_and_reason_has_its_row_and_no_other_has() -> None:
    metrics = (DOCS / "metrics.md").read_text()
    for head, name in (("reason", "`reason`"), ("cause", "of misfires")):
        rows = PAGE.partition(f"| {head} | it means |")[2].partition("\n\n")[0]
        listed = re.search(rf"{name}:((?:\s*`\w+`,?)+)", metrics)
        assert listed is not None
        told = set(re.findall(r"^\| `(\w+)`", rows, re.MULTILINE))
        assert told == set(re.findall(r"`(\w+)`", listed[1]))


def test_every_link_leads_to_a_heading_that_is_there() -> None:
    links = re.findall(r"\]\((\S*?)(?:#(\S+?))?\)", PROSE)
    assert len(links) > 15
    for file, anchor in links:
        text = (DOCS / (file or "runbook.md")).read_text()
        heads = [
            re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
            for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        ]
        assert not anchor or anchor in heads, (file, anchor)


def test_the_figures_are_those_of_the_default_options() -> None:
    job, app = resolve(), resolve_app({"project": "p", "store": "memory"})
    expiry, beat, call, grace = job.lock_expiry, job.heartbeat_interval, job.call_timeout, job.shutdown_grace
    figures = {
        "a leader is stopped": f"50 ms; {beat:g} s; {2 * beat:g} s",
        "the same, until": f"{grace:g} s",
        "a leader is killed": f"{1.01 * expiry + 0.1:g} s",
        "the store is away": f"{expiry - job.margin - beat - call:g} s",
        "the store is back": f"{1.2 * beat + call:g} s; {1.2 * job.max_backoff_delay + call:g} s; {expiry:g} s",
        "the store restarted": f"{expiry + 1:g} s",
        "a leader does not reach": f"{expiry - job.margin:g} s",
        "the store lost the lease": f"{1.01 * expiry:g} s",
        "the same, seen by no": f"{beat + call:g} s",
        "the job loop is dead": f"{app.stall_limit + expiry:g} s",
        "a run ignores": f"`timeout` + {grace + expiry:g} s",
        "a job is paused": f"100 ms; {beat:g} s; {expiry - job.margin:g} s",
    }
    table = PAGE.partition("## Which promise bounds it")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^-].*?) \| .* \| (.*?) \|$", table, re.MULTILINE)[1:]
    assert len(rows) == len(figures)
    for (what, bound), (begin, figure) in zip(rows, figures.items(), strict=True):
        assert what.startswith(begin)
        assert bound == figure


# -- chapters, played ------------------------------------------------------------------------------------------------


class Scene:
    """One replica on a server of its own, as the page has it: project `pricing`, job `price-tick`."""

    def __init__(self, server: Server, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self.log = directory / "pricing-a.log"
        self.client: Any = server.client(decode_responses=True)  # the client's own annotations are incomplete
        self._capsys = capsys
        options: dict[str, Any] = {"lock_expiry": "1s", "heartbeat_interval": "300ms", "max_backoff_delay": "1s"}
        self.app = SingletonJobs("pricing", server.url, node_id="pricing-a", amnesia_guard=False, **options)

        @self.app.fixed_rate("100ms")
        async def price_tick() -> None: ...

    def leads(self) -> None:
        wait_for(lambda: self.app.is_leader("price-tick"), what="a leader")

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints, stdout and stderr."""
        assert main(words) == code
        output = self._capsys.readouterr()
        return output.out + output.err

    def redis(self, line: str) -> Any:
        """The answer to a documented call of redis-cli."""
        words = shlex.split(line)
        assert words in spoken("redis-cli"), line
        return self.client.execute_command(*words)

    def says(self, event: str) -> str:
        """The text of the first line of this event, waited for."""
        wait_for(lambda: self._lines(event), what=event)
        return str(self._lines(event)[0]["message"])

    def _lines(self, event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.log.read_text().rpartition("\n")[0].splitlines())
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("singletonjob")
    with Server(OLDEST, tmp_path) as server:
        monkeypatch.setenv("SINGLETONJOB_PROJECT", "pricing")
        monkeypatch.setenv("SINGLETONJOB_STORE", server.url)
        scene = Scene(server, tmp_path, capsys)
        handler = logging.FileHandler(scene.log)
        handler.setFormatter(JsonFormatter())
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            with scene.app.in_thread():
                scene.leads()
                yield scene
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            handler.close()
            scene.client.close()


def test_when_all_is_well_every_call_of_redis_cli_is_answered_as_told(scene: Scene) -> None:
    holder = scene.redis(f"GET {LOCK}")
    assert holder.startswith("pricing-a-")
    assert 0 < scene.redis(f"PTTL {LOCK}") <= 1000
    assert re.search(rf"^price-tick  {holder}  \d+ s .*  0  +[01]\.\d s  \d+$", scene.run("status"), re.MULTILINE)
    assert scene.redis(f"TYPE {LOCK}") == "string"
    assert scene.redis(f"TYPE '{{{LOCK}}}:state'") == "hash"
    assert not scene.redis(f"HGET '{{{LOCK}}}:state' paused")
    assert scene.redis("HMGET '{pricing:daily-report:lock}:state' slot done") == [None, None]
    assert scene.redis("INFO stats")["evicted_keys"] == 0
    assert "cmdstat_flushall" not in scene.redis("INFO commandstats")


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not part of the project; the page's reader needs it")
def test_the_story_is_read_from_the_log_as_told(scene: Scene) -> None:
    scene.app.stop()
    scene.says("released")
    with scene.log.open("a") as log:
        log.write('what a body printed\n42\n"text"\n')
    reader = next(line for line in LINES if line.startswith("events() "))
    call = next(line for line in LINES if line.startswith("events elected released"))
    done = subprocess.run(["sh", "-c", f"{reader}\n{call}"], capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr == ""
    stories = [re.sub(r"[0-9a-f]{8}|\d", "0", line) for line in done.stdout.splitlines()]
    told = [re.sub(r"[0-9a-f]{8}|\d", "0", line) for line in blocks("text")[1].splitlines()]
    assert stories == told[:2]


def test_a_key_without_expiry_is_shown_as_no_end_said_in_the_log_and_mended_by_del(scene: Scene) -> None:
    scene.client.set(LOCK, "somebody")
    assert re.search(r"^price-tick  somebody .* no end$", scene.run("status"), re.MULTILINE)
    assert scene.redis(f"PTTL {LOCK}") == -1
    assert scene.says("no-expiry") in PAGE
    assert dict(scene.app.health().jobs) == {"price-tick": "following"}
    for verb in ("step-down", "trigger"):
        told = scene.run(verb, "price-tick", code=1).removeprefix("price-tick: ").strip()
        assert told in " ".join(PROSE.split())
    assert scene.redis(f"DEL {LOCK}") == 1
    scene.leads()


def test_a_pause_is_told_by_status_health_and_the_key_until_it_is_resumed(scene: Scene) -> None:
    (words,) = (words for words in spoken("singletonjob") if words[0] == "pause")
    scene.run(*words)
    wait_for(lambda: scene.app.health().jobs["price-tick"] == "paused", what="the pause")
    assert re.search(
        r"^price-tick  nobody .*\n    paused \d+ s ago by \S+ until \S+Z: feed is down$",
        scene.run("status"),
        re.MULTILINE,
    )
    until, at, _, reason = scene.redis(f"HGET '{{{LOCK}}}:state' paused").split(";")
    assert int(until) - int(at) == 7200 * 1_000_000
    assert reason == "feed is down"
    assert [job["paused"] is None for job in json.loads(scene.run("status", "--json"))] == [False]
    assert scene.run("resume", "price-tick").startswith("price-tick: resumed; it was paused by ")
    scene.leads()
    assert [job["paused"] is None for job in json.loads(scene.run("status", "--json"))] == [True]


def test_a_broken_key_is_named_in_the_log_while_status_says_nobody_and_health_store_down(scene: Scene) -> None:
    scene.client.delete(LOCK)
    scene.client.lpush(LOCK, "x")
    assert scene.says("job-error") in PAGE
    wait_for(lambda: not scene.app.is_leader("price-tick"), what="the end of the lease")
    assert scene.redis(f"TYPE {LOCK}") == "list"
    assert "price-tick  nobody" in scene.run("status")
    assert dict(scene.app.health().jobs) == {"price-tick": "store_down"}
    scene.redis(f"DEL {LOCK}")
    scene.leads()


def test_without_a_store_status_exits_with_1_and_health_leads_on_and_then_says_store_down(scene: Scene) -> None:
    scene.server.kill()
    gone = time.monotonic()
    assert "Connection refused" in scene.run("status", code=1)
    wait_for(lambda: scene.app.health().status == "store_down", what="store_down")
    assert time.monotonic() - gone < 10
    assert scene.app.health().live
    assert scene.says("heartbeat-error").startswith("heartbeat error (attempt 1): redis store: ")
    assert re.sub(r"\d\.\d s", "9.0 s", scene.says("lost")) in PAGE
    scene.server.start()
    scene.leads()
    assert scene.says("store-up").startswith("the store answers again, after ")
