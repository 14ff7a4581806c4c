"""Every code block of the pages holds: Python is type-checked, commands are parsed, configuration is loaded.

What the pages may say to this check is told in tests/code_blocks.py.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from code_blocks import Block, Module, blocks, modules, pages
from singletonjob import ConfigError, SingletonJobs
from singletonjob.cli import COMMANDS, _parser

ROOT = Path(__file__).parents[2]
SETTINGS = ("--config-file", "pyproject.toml", "--show-absolute-path", "--no-error-summary", "--no-pretty")
# The cache is that of `scripts/lint`, which has seen the same packages already.

LANGUAGES = {
    *("console", "dockerfile", "http", "ini", "json", "lua", "pycon", "promql", "python", "sh", "sql", "text", "toml"),
    "yaml",
}

PAGES = {name: blocks(page.read_text(), name) for page in pages() if (name := page.relative_to(ROOT).as_posix())}
BLOCKS = [block for found in PAGES.values() for block in found]


def in_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def each(found: list[Block]) -> pytest.MarkDecorator:
    assert found
    return pytest.mark.parametrize("block", found, ids=[block.place for block in found])


def test_each_block_says_in_what_language_it_is() -> None:
    unknown = [f"{block.place}: {block.language or 'nothing'}" for block in BLOCKS if block.language not in LANGUAGES]
    assert not unknown, "\n".join(unknown)


# -- Python --------------------------------------------------------------------------------------------------------


def test_the_code_of_another_library_compiles() -> None:
    for block in in_language("python"):
        if block.other:
            compile(block.text, block.place, "exec")


def wrong(made: list[Module], directory: Path) -> list[str]:
    """What mypy, strict as it is for the sources, has against these modules, each line with its place in the page."""
    files: list[str] = []
    for module in made:
        file = directory.joinpath(*module.name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(module.text)
        files.append(str(file))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *SETTINGS, *files],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(directory)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    by_name = {module.name: module for module in made}
    found: list[str] = []
    for line in done.stdout.splitlines():
        # An error from the cache names the directory of the run that found it, so only what is below tells the file.
        said = re.fullmatch(r".+?/(pages/\S+)\.py:(\d+): (.*)", line)
        if said is None:
            found.append(line)
        elif not said[3].endswith("[empty-body]"):  # what the reader has to imagine ends in `: ...`
            module = by_name[said[1].replace("/", ".")]
            found.append(f"{module.page}:{module.lines[int(said[2]) - 1]}: {said[3]}")
    return found


def test_the_python_of_all_pages_passes_mypy(tmp_path: Path) -> None:
    made = [module for found in PAGES.values() for module in modules(found)]
    assert len(made) > 10
    found = wrong(made, tmp_path)
    assert not found, "\n".join(found)


# -- commands ------------------------------------------------------------------------------------------------------


def commands(text: str) -> list[list[str]]:
    """The words of each `singletonjob ...` in lines of a shell, with `$` before them or without."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(r"singletonjob \S+:", line):
            continue  # what a command said
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        while words and (words[0] in {"exec", "time"} or re.match(r"[A-Z_]+=", words[0])):
            del words[0]
        if words[:1] == ["singletonjob"]:
            signs = (place for place, word in enumerate(words) if re.fullmatch(r"[|&;<>()]+", word))
            end = next(signs, len(words))
            if words[end:] and ">" in words[end] and words[end - 1].isdigit():
                end -= 1  # the number of a descriptor
            found.append(words[1:end])
    return found


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the real parser has against them; nothing if they are right."""
    try:
        _parser(next((word for word in words if word in COMMANDS), None)).parse_args(words)
    except SystemExit as end:
        return "" if end.code == 0 else capsys.readouterr().err
    return ""


@each([block for block in in_language("sh", "console") if commands(block.text)])
def test_the_commands_are_ones_that_the_program_knows(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    assert [(words, said) for words in commands(block.text) if (said := refusal(words, capsys))] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_are_ones_that_the_program_knows(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = re.sub(r"^( *)(```+).*?^\1\2", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    found = [words for span in re.findall(r"`([^`]+)`", text) for words in commands(span)]
    wrong = [(words, said) for words in found if (said := refusal(words, capsys))]
    # A text may leave out what does not matter there, as in `singletonjob run --otel`.
    assert [(words, said) for words, said in wrong if not re.search("(are|is) required", said)] == []


# -- data ----------------------------------------------------------------------------------------------------------


@each([block for block in in_language("toml") if block.title == "singletonjob.toml"])
def test_a_configuration_file_is_one_that_the_library_reads(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / block.title
    file.write_text(block.text)
    monkeypatch.setenv("SINGLETONJOB_CONFIG", str(file))
    app = SingletonJobs()
    for name in tomllib.loads(block.text).get("jobs", {}):
        add(app, name)
    options = app.resolved().options()
    assert [note.text for note in options.notes if note.event == "unknown-job"] == []


def add(app: SingletonJobs, name: str) -> None:
    """A job of whichever shape has the options that the file gives it."""
    refused: list[ConfigError] = []
    for shape, when in (("interval", "1s"), ("fixed_rate", "1s"), ("cron", "* * * * *")):
        trial = SingletonJobs()
        getattr(trial, shape)(when, name=name)(lambda: None)
        try:
            trial.resolved()
        except ConfigError as error:
            refused.append(error)
        else:
            getattr(app, shape)(when, name=name)(lambda: None)
            return
    raise ExceptionGroup(f"no shape of job has all the options that the file gives {name}", refused)


@each(in_language("toml"))
def test_toml_parses(block: Block) -> None:
    assert tomllib.loads(block.text)


@each(in_language("yaml"))
def test_yaml_parses(block: Block) -> None:
    assert any(list(yaml.safe_load_all(block.text)))


@each(in_language("json"))
def test_json_parses(block: Block) -> None:
    assert json.loads(block.text)


@each(in_language("ini"))
def test_ini_parses(block: Block) -> None:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(block.text)
    assert parsed.sections()
