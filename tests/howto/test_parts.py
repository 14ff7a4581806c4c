"""What follows the pages would notice one that does not do what it says."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from howto.likeness import missing
from howto.page import BadPage, Commands, Ending, File, Output, Wait, is_page, steps
from howto.place import Ports
from howto.session import NotAsPrinted, Session

if TYPE_CHECKING:
    from pathlib import Path

FENCE = "```"


def fence(info: str, text: str) -> str:
    return f"{FENCE}{info}\n{text}\n{FENCE}\n"


def follow(page: str, directory: Path) -> list[str]:
    """What was said of each step."""
    said: list[str] = []
    with Session(directory, dict(os.environ), said.append) as session:
        session.follow(steps(page))
    return said


# -- a page as steps -----------------------------------------------------------------------------------------------


def test_only_a_page_that_says_so_is_followed() -> None:
    assert is_page("# Title\n\n<!-- howto: page -->\n")
    assert not is_page("# Title\n\nas `<!-- howto: page -->` says\n")


def test_files_commands_and_output_come_in_the_order_of_the_page() -> None:
    page = fence('python title="a.py"', "x = 1") + fence("sh", "python a.py") + fence("text", "done")
    assert steps(page) == [
        File(line=1, name="a.py", text="x = 1\n"),
        Commands(line=4, text="python a.py\n"),
        Output(line=7, text="done\n"),
    ]


def test_what_must_be_imagined_stands_in_front_of_its_file() -> None:
    page = '<!-- python title="feed.py"\nprice = 7\n-->\n<!-- python\nimport feed\n-->\n'
    page += fence('python title="a.py"', "print(feed.price)")
    assert steps(page) == [
        File(line=1, name="feed.py", text="price = 7\n"),
        File(line=7, name="a.py", text="import feed\n\nprint(feed.price)\n"),
    ]


def test_comments_say_what_is_to_become_of_the_next_commands() -> None:
    page = '<!-- howto: background first until "is up" -->\n' + fence("sh", "serve")
    page += '<!-- howto: wait first second "leads" as leader -->\n<!-- howto: stop first exit 3 -->\n'
    page += "<!-- howto: quit leader -->\n<!-- howto: exit 1 -->\n" + fence("sh", "false")
    assert steps(page) == [
        Commands(line=2, text="serve\n", name="first", until="is up"),
        Wait(line=5, names=("first", "second"), text="leads", alias="leader"),
        Ending(line=6, name="first", code=3),
        Ending(line=7, name="leader", code=None),
        Commands(line=9, text="false\n", code=1),
    ]


@pytest.mark.parametrize(
    "page", ["<!-- howto: backgruond a -->\n", "<!-- howto: exit 1 -->\n", "```sh\nls\n", "<!-- howto: file a\n"]
)
def test_a_comment_that_says_nothing_is_an_error(page: str) -> None:
    with pytest.raises(BadPage, match="line 1"):
        steps(page)


# -- what is shown, and what is printed ----------------------------------------------------------------------------


def test_times_names_and_numbers_may_differ() -> None:
    shown = "2026-11-30 02:14:21.893Z INFO    tick: as laptop-0d1f72c9 by ann@laptop\n...\n2 passed in 0.31s"
    printed = "noise\n2027-01-02 03:04:05.678Z INFO tick: as vm-aaaabbbb by root@vm\nmore\n2 passed in 11.2s\n"
    assert missing(shown, printed) is None


@pytest.mark.parametrize("printed", ["", "tick: released", "tick: leads\nother", "other\nmore"])
def test_words_may_not(printed: str) -> None:
    assert missing("tick: leads\nmore", printed) is not None


def test_the_order_counts() -> None:
    assert missing("one thing\nother thing", "other thing\none thing") == "other thing"


@pytest.mark.parametrize("log", ["2026-12-01 09:22:38.465Z INFO    tick: leads", "INFO:singletonjob:tick: leads"])
def test_a_log_line_between_a_text_and_the_end_of_its_line_hides_neither(log: str) -> None:
    printed = f"reports: ready, token 1796116958464858{log}\n\n"
    assert missing("reports: ready, token 17", printed) is None
    assert missing(log, printed) is None
    assert missing("reports: ready", printed) == "reports: ready"


# -- a session -----------------------------------------------------------------------------------------------------


def test_a_terminal_keeps_its_directory_and_variables(tmp_path: Path) -> None:
    page = fence("sh", "mkdir inner\ncd inner\nexport WHO=me") + fence("sh", 'echo "$WHO $(basename "$PWD")"')
    follow(page + fence("text", "me inner"), tmp_path)


def test_a_reader_may_have_set_a_variable(tmp_path: Path) -> None:
    page = '<!-- howto: with "WHO=me and you" -->\n' + fence("sh", 'echo "$WHO"') + fence("text", "me and you")
    follow(page, tmp_path)


def test_a_file_is_continued(tmp_path: Path) -> None:
    block = fence('python title="a/b.py"', "print('a line')")
    follow(block + block + fence("sh", "python3 a/b.py") + fence("text", "a line\na line"), tmp_path)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (fence("sh", "echo here; exit 3"), "line 1: exit code 3, and not 0; it printed\n    here"),
        (fence("sh", "false\ntrue"), "line 1: exit code 1"),
        ("<!-- howto: exit 1 -->\n" + fence("sh", "true"), "line 2: exit code 0, and not 1"),
        ('<!-- howto: expect "here" -->\n' + fence("sh", "echo nothing"), "line 2: does not print 'here'"),
        (fence("sh", "echo there") + fence("text", "here"), "line 4: 'here' is shown and not printed"),
        ('<!-- howto: background a until "x" -->\n' + fence("sh", "exit 4"), "line 2: a ended without printing 'x'"),
        ("<!-- howto: stop a -->\n", "line 1: nothing was started in the background as a"),
    ],
)
def test_a_page_that_does_not_do_what_it_says_is_told_with_its_line(page: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(NotAsPrinted) as caught:
        follow(page, tmp_path)
    assert said in str(caught.value)


PROGRAM = """
import signal, sys, time
def end(*_):
    print("was asked to end")
    sys.exit({code})
signal.signal(signal.SIGINT, end)
print("is up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("code", [0, 5])
def test_ctrl_c_lets_a_program_end_with_its_own_exit_code(code: int, tmp_path: Path) -> None:
    page = fence('python title="a.py"', PROGRAM.format(code=code))
    page += '<!-- howto: background a until "is up" -->\n' + fence("sh", "python3 a.py")
    page += f"<!-- howto: stop a exit {code} -->\n<!-- howto: output of a -->\n" + fence("text", "was asked to end")
    follow(page, tmp_path)


def test_another_exit_code_is_told(tmp_path: Path) -> None:
    page = fence('python title="a.py"', PROGRAM.format(code=5))
    page += '<!-- howto: background a until "is up" -->\n' + fence("sh", "python3 a.py") + "<!-- howto: stop a -->\n"
    with pytest.raises(NotAsPrinted, match="a ended with 5, and not 0"):
        follow(page, tmp_path)


def test_what_still_runs_at_the_end_is_killed(tmp_path: Path) -> None:
    page = '<!-- howto: background a until "is up" -->\n' + fence("sh", "echo is up\nsleep 60\ntouch survived")
    page += fence("sh", "sleep 0.5 && touch left-behind &")
    begun = time.monotonic()
    follow(page, tmp_path)
    assert time.monotonic() - begun < 30
    time.sleep(1)
    assert not list(tmp_path.rglob("left-behind"))
    assert not list(tmp_path.rglob("survived"))


def test_commands_that_need_what_is_not_here_are_left_out_with_their_output(tmp_path: Path) -> None:
    page = "<!-- howto: needs no-such-program -->\n" + fence("sh", "false") + fence("text", "something")
    page += "<!-- howto: skip because it's late -->\n" + fence("sh", "false")
    assert [line.partition("because ")[2] for line in follow(page, tmp_path)] == [
        "there is no no-such-program here",
        "it's late",
    ]


def test_a_port_that_is_taken_becomes_another_everywhere() -> None:
    ports = Ports()
    ports.of[8000] = 40123
    ports.of[8081] = 8081
    assert ports.rewrite("http://localhost:8000/ --port 8000, 8081, 18000") == (
        "http://localhost:40123/ --port 40123, 8081, 18000"
    )
