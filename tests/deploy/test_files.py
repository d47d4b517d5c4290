"""The files in `deploy/`, checked without the servers that read them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dashboards import rules
from otel_rl.serve.servers import configurations
from tests.real_parts import needs_program

_DEPLOY = Path(__file__).parents[2] / "deploy"
_KUBERNETES = _DEPLOY / "kubernetes"
_OF_OPERATORS = ("PodMonitor", "PrometheusRule")
_OPEN = {53, 443, 4317, 4318, 4320, 9464, 9470, 29500, 32768, 60999}
"""DNS, HTTPS, bridge, head, metrics, page, torchrun's rendezvous, and the ephemeral ports of NCCL and Gloo."""


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def resources() -> list[Any]:
    """Return everything that Kubernetes is given."""
    files = [path for path in sorted(_KUBERNETES.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [one for path in files for one in yaml.safe_load_all(path.read_text())]


def pod(resource: Any) -> Any:
    """Return the pod of a resource that has a template of pods, otherwise nothing."""
    return resource.get("spec", {}).get("template", {}).get("spec", {})


def selects(selector: Any, labels: dict[str, str]) -> bool:
    """Return whether a selector of pods matches labels."""
    same = selector.get("matchLabels", {}).items() <= labels.items()
    return same and all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", []))


def ways(policy: Any) -> list[Any]:
    """Return the rules of a policy in both directions."""
    return [*policy.get("ingress", []), *policy.get("egress", [])]


def numbers(rule: Any) -> list[int]:
    """Return the first and the last port of each range of a rule."""
    return [port for one in rule["ports"] for port in (one["port"], one.get("endPort", one["port"]))]


@needs_program("docker-compose")
def test_compose() -> None:
    """The file is valid, every image has a version, and nothing listens beyond this machine."""
    told = run("docker-compose", "-f", str(_DEPLOY / "compose.yaml"), "config", GRAFANA_PASSWORD="x", RUNS="/runs")
    services = yaml.safe_load(told)["services"]

    assert set(services) == {"alertmanager", "collector", "collector-queue", "grafana", "prometheus", "tempo"}
    for service in services.values():
        assert service["image"].partition(":")[2][:1].isdigit() or service["image"].partition(":v")[2]
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))
    assert services["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_containers_may_do_as_little_as_they_need() -> None:
    """A user that is not root, no capabilities, only volumes are writable, and limits of memory and of processes."""
    services = yaml.safe_load((_DEPLOY / "compose.yaml").read_text())["services"]

    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert service["mem_limit"]
        assert service["pids_limit"]
        assert not any(service.get(name) for name in ("privileged", "pid", "ipc", "devices"))
    with_more = {name: one for name, one in services.items() if one["user"][0] == "0" or one.get("cap_add")}
    assert [*with_more] == ["collector-queue"]  # it ends before the Collector starts
    assert with_more["collector-queue"]["cap_add"] == ["CHOWN"]
    assert with_more["collector-queue"]["network_mode"] == "none"


@needs_program("docker-compose")
def test_compose_wants_a_password() -> None:
    """Grafana has no default password."""
    command = ["docker-compose", "-f", str(_DEPLOY / "compose.yaml"), "config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "set GRAFANA_PASSWORD" in done.stderr


def test_compose_mounts_what_is_there() -> None:
    """Every file and directory that compose.yaml mounts exists."""
    services = yaml.safe_load((_DEPLOY / "compose.yaml").read_text())["services"].values()
    mounted = [volume.partition(":")[0] for service in services for volume in service.get("volumes", [])]

    ours = [place for place in mounted if place.startswith(".")]
    assert len(ours) >= 6
    assert [place for place in ours if not (_DEPLOY / place).exists()] == []


@needs_program("promtool")
@needs_program("prometheus")
def test_prometheus(tmp_path: Path) -> None:
    """Prometheus 2 and 3 accept the configuration of the stack, with all rules, and with the scrapes of a Collector."""
    config = configurations(_DEPLOY, {"prometheus": shutil.which("prometheus") or ""})["prometheus.yml"]
    (tmp_path / "prometheus.yml").write_text(config + (_DEPLOY / "prometheus" / "collector.yml").read_text())
    (tmp_path / "scrape-token").touch()
    shutil.copy(_DEPLOY / "prometheus" / "alertmanagers.json", tmp_path)
    shutil.copytree(_DEPLOY.parent / "dashboards" / "rules", tmp_path / "rules")
    told = run("promtool", "check", "config", str(tmp_path / "prometheus.yml"))

    assert f"{len(rules.read().alerts) + len(rules.read().record)} rules found" in told


@needs_program("amtool")
def test_alertmanager() -> None:
    """Its configuration; the alerts that it knows by name are there."""
    path = _DEPLOY / "alertmanager" / "alertmanager.yml"
    assert "SUCCESS" in run("amtool", "check-config", str(path))
    names = {alert.name for alert in rules.read().alerts}
    matchers = [m for rule in yaml.safe_load(path.read_text())["inhibit_rules"] for m in rule["source_matchers"]]

    assert {name for matcher in matchers for name in matcher.split('"')[1].split("|")} <= names


@pytest.mark.parametrize("resource", resources(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_kubernetes(resource: Any) -> None:
    """Kubernetes's own schemas, strictly; for the operators' kinds it is their shape alone."""
    if resource["kind"] in _OF_OPERATORS:
        assert resource["apiVersion"] == "monitoring.coreos.com/v1"
        assert resource["spec"]
    else:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def test_no_secret_is_a_variable_of_a_pod() -> None:
    """Tokens and keys are files: processes do not inherit them, and frameworks do not log them with the variables."""
    pods = [one for one in map(pod, resources()) if one]

    assert len(pods) == 3
    for one in pods:
        secrets = {volume["name"]: volume["secret"] for volume in one["volumes"] if "secret" in volume}
        assert sorted(each["secretName"] for each in secrets.values()) in (["otel-rl", "trackers"], ["otel-rl"])
        assert {each["defaultMode"] for each in secrets.values()} == {0o440}
        for container in [*one.get("initContainers", []), *one["containers"]]:
            assert "envFrom" not in container
            assert not any("secretKeyRef" in each.get("valueFrom", {}) for each in container["env"])
            mounted = {each["name"]: each for each in container["volumeMounts"]}
            assert all(mounted[name]["readOnly"] for name in secrets if name in mounted)
            assert ("trackers" in mounted) == (container["name"] not in ("trainer", "page"))  # the agent sends


def test_each_pod_is_reached_by_who_needs_it_alone() -> None:
    """Policies for both directions select each pod, and each of their rules has peers with labels, and ports."""
    found = resources()
    policies = [one["spec"] for one in found if one["kind"] == "NetworkPolicy"]
    rules_of_both = [(rule, rule.get("from") or rule["to"]) for one in policies for rule in ways(one)]

    assert {port for rule, _ in rules_of_both for port in numbers(rule)} == _OPEN
    assert not any(selector == {} for _, peers in rules_of_both for peer in peers for selector in peer.values())
    for one in filter(pod, found):
        labels = {**one["spec"]["template"]["metadata"]["labels"], "job-name": one["metadata"]["name"]}
        chosen = [policy for policy in policies if selects(policy["podSelector"], labels)]
        assert {way for policy in chosen for way in policy["policyTypes"]} == {"Ingress", "Egress"}


def test_the_job_is_in_the_namespace_of_its_secret() -> None:
    """The Job finds the Secret, the policies and the PodMonitor that kustomize installs."""
    namespace = yaml.safe_load((_KUBERNETES / "kustomization.yaml").read_text())["namespace"]
    job = list(yaml.safe_load_all((_KUBERNETES / "train.yaml").read_text()))

    assert [one["metadata"]["namespace"] for one in job] == [namespace] * 3


def test_kubernetes_has_the_same_rules() -> None:
    """They are the rules of the other Prometheus."""
    of_kubernetes = yaml.safe_load((_KUBERNETES / "rules.yaml").read_text())["spec"]

    assert of_kubernetes == yaml.safe_load(rules.prometheus_rules(rules.read()))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="Debian's kubectl is too old for it")
def test_kustomize() -> None:
    """It builds, with each dashboard in a ConfigMap that Grafana's sidecar finds."""
    built = list(yaml.safe_load_all(run("kubectl", "kustomize", str(_KUBERNETES))))
    maps = [one for one in built if one["kind"] == "ConfigMap"]
    dashboards = {path.name for path in (_DEPLOY.parent / "dashboards" / "grafana").glob("*.json")}

    assert {name for one in maps for name in one["data"]} == dashboards
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps)


@pytest.mark.parametrize("script", sorted((_DEPLOY / "slurm").iterdir()), ids=lambda path: path.name)
def test_slurm(script: Path) -> None:
    """Bash can read it, and Slurm's options come before anything else; tests/cluster runs it."""
    run("bash", "-n", str(script))
    lines = script.read_text().splitlines()
    options = [n for n, line in enumerate(lines) if line.startswith("#SBATCH ")]

    assert options == list(range(1, len(options) + 1))
    assert bool(options) == (script.suffix == ".sbatch")
    assert all(line[8:].startswith("--") for line in lines if line.startswith("#SBATCH "))


def test_every_file_is_listed() -> None:
    """The table of deploy/README.md has a line for each file, and for no other."""
    lines = (_DEPLOY / "README.md").read_text().partition("## What was run, and what was not")[2].splitlines()
    listed = [name for line in lines for name in re.findall(r"^\| `([^`]+)` \|", line)]
    files = {str(path.relative_to(_DEPLOY)) for path in _DEPLOY.rglob("*") if path.is_file()} - {"README.md"}

    assert sorted(listed) == sorted(files)


@pytest.mark.parametrize(
    ("service", "module", "pattern"),
    [
        (
            "prometheus",
            "prometheus",
            r"/prometheus/prometheus v0\.3(\d+)\.(\d+)",
        ),
        ("alertmanager", "alertmanager", r"prometheus/alertmanager v0\.(\d+)\.(\d+)"),
        ("collector", "collector", r"receiver/otlpreceiver v0\.(\d+)\.(\d+)"),
    ],
)
def test_images_are_those_that_were_run(service: str, module: str, pattern: str) -> None:
    """Their versions are those of the servers that the tests build."""
    image = yaml.safe_load((_DEPLOY / "compose.yaml").read_text())["services"][service]["image"]
    found = re.search(pattern, (_DEPLOY.parent / ".ci" / "go" / module / "go.mod").read_text(), re.DOTALL)
    assert found is not None

    assert image.rpartition(":")[2].lstrip("v").split(".")[1:] == [str(int(part)) for part in found.groups()]


@pytest.mark.parametrize("name", ["gateway", "metrics", "node", "tail-sampling"])
def test_collectors(name: str) -> None:
    """Each pipeline is made of what is configured."""
    config = yaml.safe_load((_DEPLOY / "collector" / f"{name}.yaml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for kind, parts in pipeline.items():
            assert set(parts) <= set(config[kind])
    assert set(config["service"].get("extensions", [])) == set(config.get("extensions", {}))
