"""What an installation brings along."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path


def test_p62_there_are_three_dependencies_and_none_of_them_has_any_of_its_own() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[^a-z]", line)[0] for line in project["dependencies"]]
    assert names == ["cronsim", "redis", "tzdata"]
    for name in names:
        assert [line for line in requires(name) or [] if "extra" not in line and "python" not in line] == []
