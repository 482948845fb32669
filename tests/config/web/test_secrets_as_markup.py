"""Pieces of markup and of JSON are secrets, and no page, answer, log line or message to a model changes its form."""

import json
import logging
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_celery_results.models import TaskResult
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from rest_framework import serializers

from agents.kernel import redaction
from agents.kernel.redaction import MARK
from agents.llm.requests.secrets import redacted_messages, redacted_parameters
from agents.models import ChecklistItem, MemoryNote
from config import logs
from runs.api.body import Body
from runs.api.resource import Query, Refusal
from runs.api.shown import Shown
from runs.models import Alarm, Approval, Attempt, AuditEntry, Delivery, Incident, Notification, Run, Step, Worker
from tests.config.console.test_pages import OTHERS
from tests.support.addresses import answers, pages
from tests.support.api import Api
from tests.support.console import make_failed_run, make_one_of_each, page_of
from tests.support.journals import make_step
from tests.support.secrets import forgotten
from tests.support.triggers import make_event, make_trigger
from triggers.models import EventDelivery, Schedule, Trigger

pytestmark = pytest.mark.sampled

__all__ = ["forgotten"]

PIECES = [
    ' value="', '" name="', '<input type=', '</script>', '<script src=', '<div class="', '"></div>', '</section>', '</td><td>',
    '<td class=', ' href="/admin/', '/admin/runs/', 'csrfmiddlewaretoken', 'type="hidden"', '<!DOCTYPE html>', '</head><body', 'x-data="{',
    'hx-get="/', ' onclick=', 'style="left', '&quot;&gt;', '&amp;&lt;', '&#x27;&#x27;', '<dl class="console-facts', 'console-section',
    'content-main', 'http://testserver', '/api/v1/events/?cursor=', '"results"', '"results":[', '"next":null', '"next":"http', '{"next":',
    '"}],"next', '","status":"', '"id":"01', '":"","ne', '": null, ', '\\"\\": {}', '[{"number', ']}]}]}]}', 'part_kind', 'user-prompt',
    'tool-return', '"kind":"request"', 'additionalProperties', 'exc_value', '"level": "', '"exception"', 'is_cause": ',
]  # fmt: skip
FULL = bool(os.environ.get("WAKEFUL_FULL"))  # otherwise every fifth page
LEAKED = "leaked-into-a-row-0123456789"
TEXTS = {
    Run: "error status_reason key", Attempt: "error traceback", Step: "error", Approval: "question detail reason",
    Notification: "text topic", Delivery: "reason", EventDelivery: "reason", Alarm: "text remedy", Incident: "cause",
    MemoryNote: "text", ChecklistItem: "text", Trigger: "paused_reason", Schedule: "paused_note", Worker: "stopped_reason",
    TaskResult: "result traceback",
}  # fmt: skip
VALUES = {Run: "input result", Step: "output arguments", Approval: "arguments"}
FORMS = re.compile(r"/admin/agents/(checklist|memorynote)/\d+/edit/")  # have what an operator entered
OF_OTHERS = {"data", "headers", "input", "result", "output", "arguments"}  # have the names that senders and agents gave


class Form(HTMLParser):
    """Tags, the names of their attributes, and those values that scripts and forms live by."""

    BY = (
        "name",
        "type",
        "href",
        "id",
        "class",
        "method",
        "action",
        "hx-get",
        "hx-target",
        "hx-trigger",
        "x-data",
        "src",
    )

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [(name, value if name in self.BY else None) for name, value in attributes]))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(tag)


def form_of(value: Any) -> Any:
    """Names and types of a JSON answer of Wakeful's own; `data` and the like have what senders gave them."""
    if isinstance(value, dict):
        return {name: None if name in OF_OTHERS else form_of(one) for name, one in value.items()}
    return [form_of(one) for one in value] if isinstance(value, list) else type(value)


@pytest.mark.chaos
@pytest.mark.django_db
def test_every_page_and_list_keeps_its_form(admin_client: Client, forgotten: None) -> None:
    assert len(PIECES) >= 50 and [piece for piece in PIECES if len(piece) < redaction.SHORTEST] == []
    rows = make_one_of_each(1)
    Worker.objects.update(seen_at=timezone.now() + timedelta(days=1))  # its state changes with time otherwise
    spoken = " | ".join([LEAKED, *PIECES])
    event = make_event(subject=spoken[:200], data={"said": PIECES, "all": spoken}, headers={"x-note": spoken})
    run = make_failed_run(make_trigger("markup"))
    make_step(run, "call")
    AuditEntry.objects.create(by="test", action="look", kind="run", object_id="1", detail={"said": spoken})
    TaskResult.objects.create(task_id="1", task_name="x")
    for model, names in TEXTS.items():
        model._default_manager.update(**dict.fromkeys(names.split(), spoken))
    for model, names in VALUES.items():
        model._default_manager.update(**dict.fromkeys(names.split(), {"said": [spoken], spoken: 1}))
    last = [page_of("triggers_event", event), page_of("runs_run", run)]
    paths = [*pages(rows, ("triggers_event", event), ("runs_run", run)), *OTHERS]
    assert len(paths) > 200 and {*last} < {*paths}
    paths = list(dict.fromkeys([*(paths if FULL else paths[::10]), *last]))
    api = Api()
    pages_of_json = [f"/api/v1/events/{event.pk}/", f"/api/v1/runs/{run.pk}/"]
    requested = [*answers(rows), "/api/v1/events/?limit=1", *pages_of_json]
    answered = {path: api.client.get(path) for path in requested}
    shown = {path: Form(page_at(admin_client, path)).found for path in paths}
    assert answered["/api/v1/events/?limit=1"].json()["next"] and len(requested) > 40

    redaction.know(*PIECES, LEAKED)

    leaks = []
    for path, form in shown.items():
        page = page_at(admin_client, path)
        assert Form(page).found == form, path
        assert (MARK in page) >= (path in last), path
        leaks += [path] if LEAKED in page and not FORMS.fullmatch(path) else []
    for path, answer in answered.items():
        again = api.client.get(path)
        assert again.status_code == answer.status_code, path
        leaks += [path] if LEAKED in again.content.decode() else []
        if "json" in answer["Content-Type"] and "ndjson" not in answer["Content-Type"]:
            assert form_of(again.json()) == form_of(answer.json()), path
            assert again.json().get("next") == answer.json().get("next"), path
        assert (MARK in again.content.decode()) >= (path in pages_of_json), path
    assert leaks == []


def page_at(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code < 500, path
    return answer.content.decode()


@pytest.mark.django_db
def test_no_secret_takes_the_place_of_a_key_that_clients_read(forgotten: None) -> None:
    """A person who may enter a secret could choose one that locks all clients out, such as `error_kind`."""
    rows = make_one_of_each(1)
    make_step(rows["runs_run"], "call", output={"a key of the agent": 1})
    api = Api()
    answered = {path: api.client.get(path) for path in answers(rows)}
    documents = {path: one.json() for path, one in answered.items() if one["Content-Type"] == "application/json"}
    keys = {key for one in documents.values() for key in keys_of(one)}
    assert {"error_kind", "idempotency_key", "per_minute", "part_kind", "starts_at", "notify_to"} < keys

    redaction.know(*keys, "a key of the agent")

    for path, answer in documents.items():
        again = api.client.get(path)
        assert form_of(again.json()) == form_of(answer), path
        assert "a key of the agent" not in again.content.decode()


def keys_of(value: Any) -> Iterator[str]:
    """Those of Wakeful's own."""
    for name, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(name, str):
            yield name
        if name not in OF_OTHERS:
            yield from keys_of(one)


def test_a_line_of_the_log_stays_json(forgotten: None) -> None:
    redaction.know(*PIECES)
    spoken = " | ".join(PIECES)
    for format in ("json", "text"):
        stream = StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_formatter(format))
        try:
            raise RuntimeError(spoken)
        except RuntimeError as error:
            handler.emit(
                logging.LogRecord(
                    "x", logging.ERROR, "x", 1, "said %s", (spoken,), (RuntimeError, error, error.__traceback__)
                )
            )
        line = stream.getvalue()
        assert MARK in line and "</script>" not in line
        if format == "json":
            entry = json.loads(line)
            assert entry["level"] == "error" and entry["exception"][0]["exc_value"].startswith(MARK)
            assert spoken not in line and MARK in entry["event"]


def _formatter(format: str) -> logging.Formatter:
    given = dict(logs.configuration(format=format, level="INFO")["formatters"]["structlog"])
    make = given.pop("()")
    formatter: logging.Formatter = make(**given)
    return formatter


def test_a_conversation_keeps_its_form(forgotten: None) -> None:
    spoken = " | ".join(PIECES)
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart([spoken, "more"])], instructions=spoken),
        ModelResponse(parts=[ToolCallPart("look", json.dumps({"a": spoken, "b": ""})), ToolCallPart("look", {"a": spoken})]),
        ModelRequest(parts=[ToolReturnPart("look", {"said": spoken, spoken: [1]})]),
    ]  # fmt: skip
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"a": {"type": "string", "description": spoken}},
    }
    tool = ToolDefinition(name="look", description=spoken, parameters_json_schema=schema)
    redaction.know(*PIECES)

    clean = redacted_messages(messages)
    [shown] = redacted_parameters(ModelRequestParameters(function_tools=[tool]), None).function_tools

    assert [[type(part) for part in message.parts] for message in clean] == [
        [type(part) for part in message.parts] for message in messages
    ]
    call = clean[1].parts[0]
    assert isinstance(call, ToolCallPart) and call.args_as_dict().keys() == {"a", "b"}
    assert MARK in str(call.args) and MARK in str(clean[0]) and MARK in str(clean[2])
    assert "</script>" not in str(clean)
    assert shown.parameters_json_schema["additionalProperties"] is False
    assert MARK in shown.parameters_json_schema["properties"]["a"]["description"]


def test_whatever_the_api_answers_goes_through_the_one_rule() -> None:
    import config.urls  # noqa: F401, PLC0415  (all of the API)

    def below(one: type[serializers.Serializer[Any]]) -> Iterator[type[serializers.Serializer[Any]]]:
        for inner in one.__subclasses__():
            yield inner
            yield from below(inner)

    ours = [one for one in below(serializers.Serializer) if one.__module__.startswith(("runs.api", "triggers.api"))]
    others = [one for one in ours if not issubclass(one, (Shown, Query, Body, Refusal))]

    assert len(ours) > 60 and others == []
