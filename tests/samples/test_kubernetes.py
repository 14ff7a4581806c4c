"""samples/kubernetes: valid for the clusters of today, and of one mind with the code and the documentation."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sample_image import ROOT, instructions, longest_stop, stages, worker_app
from singletonjob.cli.run import arguments
from singletonjob.probes import ROUTES

SAMPLE = ROOT / "samples" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((SAMPLE / "kustomization.yaml").read_text())
VERSIONS = ["1.30", "1.34", kubernetes_validate.latest_version()]
PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md") if "livenessProbe" in page.read_text())


@cache
def resources() -> dict[tuple[str, str], Any]:
    """All that the files hold, by kind and name."""
    files = [SAMPLE / name for name in KUSTOMIZATION["resources"]]
    found = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pod(name: str = "pricing") -> Any:
    """What a deployment makes pods of."""
    return resources()["Deployment", name]["spec"]["template"]["spec"]


def container() -> Any:
    (found,) = pod()["containers"]
    return found


def generated(kind: str) -> dict[str, str]:
    """The environment that the kustomization makes of its files."""
    (generator,) = KUSTOMIZATION[kind]
    lines = [line for name in generator["envs"] for line in (SAMPLE / name).read_text().splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value for name, _, value in pairs}


def environment() -> dict[str, str]:
    """What a container gets, in the order in which Kubernetes lets one thing beat the other."""
    found: dict[str, str] = {}
    sources = {
        "configMapRef": ("configMapGenerator", "pricing-options"),
        "secretRef": ("secretGenerator", "pricing-store"),
    }
    for reference in container()["envFrom"]:
        ((kind, named),) = reference.items()
        generator, name = sources[kind]
        assert named["name"] == name == KUSTOMIZATION[generator][0]["name"]
        found |= generated(generator)
    return found | {one["name"]: "a-pod" for one in container()["env"]}


def seconds_to_stop(monkeypatch: pytest.MonkeyPatch) -> float:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return longest_stop(worker_app())


@pytest.mark.parametrize("version", VERSIONS)
def test_each_resource_is_valid_by_the_schemas_of_kubernetes(version: str) -> None:
    for resource in resources().values():
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_resource_with_a_word_that_kubernetes_does_not_know_is_not_valid() -> None:
    wrong = {**resources()["PodDisruptionBudget", "pricing"], "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError, match="specs"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_kustomization_has_each_file_and_each_has_its_place() -> None:
    named = [*KUSTOMIZATION["resources"]]
    for kind in ("configMapGenerator", "secretGenerator"):
        named += [file for generator in KUSTOMIZATION[kind] for file in generator["envs"]]
    there = {path.name for path in SAMPLE.iterdir() if path.suffix != ".md"}
    assert sorted(named) == sorted(there - {"kustomization.yaml"})


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_makes_of_the_kustomization_what_is_valid_and_refers_to_what_it_makes() -> None:
    done = subprocess.run(["kubectl", "kustomize", SAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    for resource in made:
        kubernetes_validate.validate(resource, VERSIONS[-1], strict=True)
        assert resource["metadata"].get("namespace", "pricing") == "pricing"
    names = {(one["kind"], one["metadata"]["name"]) for one in made}
    (pricing,) = (one for one in made if (one["kind"], one["metadata"]["name"]) == ("Deployment", "pricing"))
    for reference in pricing["spec"]["template"]["spec"]["containers"][0]["envFrom"]:
        ((kind, named),) = reference.items()
        assert ({"configMapRef": "ConfigMap", "secretRef": "Secret"}[kind], named["name"]) in names
    assert len(made) == len(resources()) + 2


def test_three_replicas_spread_over_nodes_and_one_of_them_may_be_evicted_at_a_time() -> None:
    deployment = resources()["Deployment", "pricing"]["spec"]
    assert deployment["replicas"] == 3
    labels = deployment["template"]["metadata"]["labels"]
    budget = resources()["PodDisruptionBudget", "pricing"]["spec"]
    spread = pod()["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for selector in (deployment["selector"], budget["selector"], *(one["labelSelector"] for one in spread)):
        assert selector["matchLabels"].items() <= labels.items()
    assert budget["maxUnavailable"] == 1


def test_a_replica_is_named_as_its_pod_and_its_environment_is_one_that_the_app_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (name,) = container()["env"]
    assert name == {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    for variable, value in environment().items():
        monkeypatch.setenv(variable, value)
    found = worker_app().resolved()
    assert found.options().store == "redis://redis:6379/0"
    assert not found.notes, "an option of a job that the image does not have, or one that a stronger source beats"
    (service,) = (one for (kind, _), one in resources().items() if kind == "Service")
    assert (service["metadata"]["name"], service["spec"]["ports"][0]["port"]) == ("redis", 6379)


def test_the_container_continues_the_command_of_the_image_and_is_probed_where_that_listens() -> None:
    assert "command" not in container(), "the image's entry point is process 1"
    (entrypoint,) = (one.exec_form for one in stages(instructions())[-1] if one.word == "ENTRYPOINT")
    parser = argparse.ArgumentParser()
    arguments(parser)
    options = parser.parse_args([*entrypoint[2:], *container()["args"]])
    (port,) = container()["ports"]
    assert options.health == ("0.0.0.0", port["containerPort"])  # noqa: S104 - the kubelet comes from outside
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container()[probe]["httpGet"] == {"path": path, "port": port["name"]}
        assert path in ROUTES


def test_kubernetes_waits_longer_than_a_stop_takes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pod()["terminationGracePeriodSeconds"] > seconds_to_stop(monkeypatch)


def test_a_probe_that_misses_once_restarts_nobody_and_two_replicas_stay_when_one_is_replaced() -> None:
    liveness = container()["livenessProbe"]
    assert liveness["failureThreshold"] >= 3, "docs/health.md: right after a suspended machine resumes, one may fail"
    assert liveness["timeoutSeconds"] < liveness["periodSeconds"]
    strategy = resources()["Deployment", "pricing"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy["maxUnavailable"] == 0


@pytest.mark.parametrize("name", ["pricing", "redis"])
def test_no_container_has_rights_that_it_does_not_need(name: str) -> None:
    of_pod = pod(name)["securityContext"]
    (one,) = pod(name)["containers"]
    assert of_pod["runAsNonRoot"]
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod(name)["automountServiceAccountToken"]
    assert set(one["resources"]["limits"]) == {"memory"}, "a limit of CPU holds a heartbeat back"


def test_no_password_lies_among_the_files() -> None:
    for value in generated("secretGenerator").values():
        assert not re.search(r"//[^/]*@", value)
    assert not any(kind == "Secret" for kind, _ in resources())


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_say_of_probes_and_grace_what_the_sample_has(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    said: list[Any] = []
    for block in re.findall(r"^```yaml[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for document in yaml.safe_load_all(block):
            said += [(key, value) for key, value in _items(document) if key in _NUMBERS]
    assert said
    for key, value in said:
        if key == "terminationGracePeriodSeconds":
            assert value == pod()[key]
        elif "httpGet" in value:
            assert value == container()[key]


def test_the_resources_on_the_page_are_those_of_the_sample_but_for_the_program() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    shown = dict(re.findall(r'^```yaml title="([^"]+)"\n(.*?)^```', text, re.DOTALL | re.MULTILINE))
    assert yaml.safe_load(shown["pod-disruption-budget.yaml"]) == resources()["PodDisruptionBudget", "pricing"]
    deployment = yaml.safe_load(shown["deployment.yaml"])
    (program,) = deployment["spec"]["template"]["spec"]["containers"]
    assert program.pop("image")
    assert program.pop("command")[3:] == container()["args"]
    assert _is_part(deployment, resources()["Deployment", "pricing"])


def _is_part(some: object, whole: object) -> bool:
    """Whether `whole` is `some` with, at most, more keys."""
    if isinstance(some, dict) and isinstance(whole, dict):
        return all(key in whole and _is_part(value, whole[key]) for key, value in some.items())
    if isinstance(some, list) and isinstance(whole, list):
        return len(some) == len(whole) and all(map(_is_part, some, whole))
    return some == whole


_NUMBERS = ("livenessProbe", "readinessProbe", "terminationGracePeriodSeconds")


def _items(value: object) -> list[tuple[str, Any]]:
    """Each key with its value, at any depth."""
    if isinstance(value, dict):
        return [*value.items(), *(item for inner in value.values() for item in _items(inner))]
    return [item for inner in value for item in _items(inner)] if isinstance(value, list) else []
