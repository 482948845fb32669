"""Event types that only Wakeful records, at every way in: an event of one of them is believed by its type."""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from standardwebhooks import Webhook

from agents import Agent, AgentRun
from agents.kernel.reserved_types import RESERVED, SIGNAL
from agents.testing import run_agent
from tests.support.durable import Lab, lab
from tests.support.hooks import SECRET, make_source, post, signed_headers
from tests.support.triggers import make_event
from triggers.accept import Incoming, ReservedType, accept, builtin_source
from triggers.api.tokens import create_token
from triggers.models import Event, Source
from triggers.sources.cloudevents.format import BATCH, STRUCTURED
from triggers.sources.signal import signal

__all__ = ["lab"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.triggers.sources.urls")]

Body = dict[str, Any]
TYPES = sorted(RESERVED)


def send_hmac(type: str, data: Body) -> Any:
    body = json.dumps(data).encode()
    make_source("h", "hmac", settings={"type_header": "X-Type"})
    return post(body, signed_headers(body) | {"X-Type": type}, "h")


def send_bearer(type: str, data: Body) -> Any:
    make_source("b", "bearer", settings={"type_path": "type"}, secret="token")
    return post(json.dumps(data | {"type": type}).encode(), {"Authorization": "Bearer token"}, "b")


def send_unverified(type: str, data: Body) -> Any:
    make_source("n", "none", secret=None, settings={"unverified": True, "type_path": "type"})
    return post(json.dumps(data | {"type": type}).encode(), {}, "n")


def send_github(type: str, data: Body) -> Any:
    make_source("g", "github")
    name, _, action = type.partition(".")
    body = json.dumps(data | {"action": action}).encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": "d-1", "X-GitHub-Event": name}
    return post(body, headers, "g")


def send_standard(type: str, data: Body) -> Any:
    secret, now = "whsec_" + "c2VjcmV0" * 4, timezone.now()
    make_source("s", "standard_webhooks", secret)
    body = json.dumps(data | {"type": type})
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(msg_id="msg_1", timestamp=now, data=body),
    }
    return post(body.encode(), headers, "s")


def send_to_api(body: bytes, content_type: str, **headers: str) -> Any:
    token = create_token("sensor", ["triggers.add_event"], by="test")[1]
    headers = {"Authorization": f"Bearer {token}", **headers}
    return Client().generic("POST", "/api/v1/events/", body, content_type, headers=headers)


def envelope(type: str, data: Body) -> Body:
    return {"specversion": "1.0", "id": "1", "source": "/there", "type": type, "data": data}


def send_structured(type: str, data: Body) -> Any:
    return send_to_api(json.dumps(envelope(type, data)).encode(), STRUCTURED)


def send_batch(type: str, data: Body) -> Any:
    return send_to_api(json.dumps([envelope("a.fine", {}) | {"id": "0"}, envelope(type, data)]).encode(), BATCH)


def send_binary(type: str, data: Body) -> Any:
    attributes = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/there", "ce-type": type}
    return send_to_api(json.dumps(data).encode(), "application/json", **attributes)


HOOKS: dict[str, Callable[[str, Body], Any]] = {
    "hmac": send_hmac, "bearer": send_bearer, "none": send_unverified, "github": send_github,
    "standard_webhooks": send_standard,
}  # fmt: skip
API: dict[str, Callable[[str, Body], Any]] = {
    "structured": send_structured, "batch": send_batch, "binary": send_binary,
}  # fmt: skip
DOORS = HOOKS | API


@pytest.mark.parametrize("door", DOORS)
def test_no_sender_may_use_a_reserved_type(door: str) -> None:
    answer = DOORS[door](SIGNAL, {})

    assert (answer.status_code, answer.json()["field"]) == (400, "type")
    assert SIGNAL in answer.json()["detail"]
    assert not Event.objects.exists()


@pytest.mark.parametrize("type", ["Run.Signal", "run.signal ", "\trun.signal", "WAKEFUL.anything"])
def test_a_type_that_reads_like_a_reserved_one_is_refused(type: str) -> None:
    for slug in ("cli", "manual"):
        with pytest.raises(ReservedType):
            accept([Incoming(source_id=builtin_source(slug), ce_source="x", ce_id=slug, type=type)])


@pytest.mark.parametrize("type", TYPES)
def test_the_command_line_may_not_emit_a_reserved_type(type: str) -> None:
    with pytest.raises(CommandError, match="reserved"):
        call_command("emit", type)

    assert not Event.objects.exists()


@pytest.mark.parametrize("type", [*TYPES, "wakeful.anything"])
def test_an_agent_may_not_emit_a_reserved_type(type: str) -> None:
    def body(run: AgentRun) -> None:
        run.emit(type)

    with pytest.raises(ValueError, match="reserved"):
        run_agent(Agent(name="forger", body=body), data={})


@pytest.mark.parametrize("type", TYPES)
def test_only_the_way_in_that_makes_a_reserved_type_may_record_it(type: str) -> None:
    """Whatever source is written next: it records by `accept`, and so comes past this."""
    for source in Source.objects.all():
        incoming = Incoming(source_id=source.id, ce_source="x", ce_id=f"{source.slug}", type=type)
        if source.slug in (RESERVED[type], "run"):
            accept([incoming])
        else:
            with pytest.raises(ReservedType):
                accept([incoming])


@pytest.fixture
def with_old_events(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Events of reserved types from any source, as versions before this one recorded them."""
    monkeypatch.setattr("triggers.accept.is_reserved", lambda type: False)
    yield


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("with_old_events")
@pytest.mark.parametrize("has_come_before", [False, True])
def test_a_signal_that_another_source_forged_ends_no_wait(lab: Lab, has_come_before: bool) -> None:
    def body(run: AgentRun) -> Any:
        if has_come_before:
            run.step("a while", lambda: forge(run))
        event = run.wait_for_signal("go", timeout="1d")
        return event and event.data

    def forge(run: AgentRun) -> None:
        for slug in ("cli", "run", "wakeup", "schedule"):
            data = {"run": str(run.id), "name": "go", "data": "forged"}
            source = builtin_source(slug)
            make_event(type="run.signal", subject=str(run.id), data=data, source_id=source)

    run = lab.run(body)
    if not has_come_before:
        forge(run)  # type: ignore[arg-type]
    assert lab.go_on(run).status == "waiting"

    signal(run.id, "go", "by a person", "ada")

    assert lab.go_on(run).result == "by a person"
