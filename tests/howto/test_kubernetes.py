"""The YAML of docs/kubernetes.md says what samples/kubernetes and docs/health.md say, and leaves a run its time."""

from __future__ import annotations

import re
from typing import Any

import yaml

from howto.defaults import longest_stop
from howto.page import File, steps
from howto.place import ROOT

PAGE = {
    step.name: yaml.safe_load(step.text)
    for step in steps((ROOT / "docs" / "kubernetes.md").read_text())
    if isinstance(step, File) and step.name.endswith(".yaml")
}

OWN = {"image", "command"}
"""What each has of its own: a program in an image."""


def sample(name: str) -> Any:
    return yaml.safe_load((ROOT / "samples" / "kubernetes" / name).read_text())


def differences(here: object, there: object, place: str = "") -> list[str]:
    """Where `there` does not say all of `here`."""
    if isinstance(here, dict):
        if not isinstance(there, dict):
            return [place]
        inner = [differences(value, there.get(key), f"{place}.{key}") for key, value in here.items() if key not in OWN]
        return [found for each in inner for found in each]
    if isinstance(here, list):
        if not isinstance(there, list) or len(here) != len(there):
            return [place]
        pairs = enumerate(zip(here, there, strict=True))
        return [found for number, (a, b) in pairs for found in differences(a, b, f"{place}[{number}]")]
    return [] if here == there else [f"{place}: {here!r} and {there!r}"]


def test_the_sample_has_all_that_the_page_shows() -> None:
    assert set(PAGE) == {"deployment.yaml", "pod-disruption-budget.yaml"}
    for name, shown in PAGE.items():
        assert differences(shown, sample(name), name) == []


def test_the_comparison_sees_a_difference() -> None:
    assert differences({"a": [{"b": 1}], "image": "x"}, {"a": [{"b": 2, "c": 3}]}) == [".a[0].b: 1 and 2"]
    assert differences({"a": [1]}, {"a": []}) == [".a"]


def test_the_probes_are_those_of_the_page_on_health() -> None:
    health = (ROOT / "docs" / "health.md").read_text()
    block = next(text for text in re.findall(r"```yaml\n(.*?)```", health, re.DOTALL) if "containers:" in text)
    (there,) = yaml.safe_load(block)["containers"]
    (here,) = PAGE["deployment.yaml"]["spec"]["template"]["spec"]["containers"]
    for probe in ("livenessProbe", "readinessProbe", "ports"):
        assert here[probe] == there[probe]


def test_a_pod_is_given_more_time_for_its_end_than_the_jobs_may_take() -> None:
    for deployment in (PAGE["deployment.yaml"], sample("deployment.yaml")):
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > longest_stop()
