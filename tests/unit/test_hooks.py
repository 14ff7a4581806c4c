"""The hooks of pre-commit: those for who works on the project, and those for users of `singletonjob generate`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pre_commit.clientlib import load_config, load_manifest

from singletonjob.cli import COMMANDS

ROOT = Path(__file__).parents[2]


def hooks() -> list[dict[str, Any]]:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local", "nothing is fetched"
    return list(repository["hooks"])


@pytest.mark.parametrize(
    ("load", "file"), [(load_config, ".pre-commit-config.yaml"), (load_manifest, ".pre-commit-hooks.yaml")]
)
def test_pre_commit_takes_the_file(load: Any, file: str) -> None:
    assert load(ROOT / file)


def test_the_hooks_check_what_scripts_lint_checks() -> None:
    checks = re.findall(r"^check (\w+)(?: (\w+))?", (ROOT / "scripts" / "lint").read_text(), re.MULTILINE)
    entries = [re.search(r"\.venv/bin/(\w+)(?: (\w+))?", hook["entry"]) for hook in hooks()]
    assert [entry.groups(default="") for entry in entries if entry is not None] == checks


def test_the_hooks_for_users_run_a_command_that_there_is() -> None:
    manifest = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {hook["entry"].split()[1] for hook in manifest} <= set(COMMANDS)
