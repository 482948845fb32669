"""Pieces of markup and of JSON are secrets, and no page, answer, log line or message to a model changes its form."""

import json
import logging
import os
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

from agents import redaction
from agents.llm.secrets import redacted_messages, redacted_parameters
from agents.models import ChecklistItem, MemoryNote
from agents.redaction import MARK
from config import logs
from runs.api.body import Body
from runs.api.resource import Query, Refusal
from runs.api.shown import Shown
from runs.models import Alarm, Approval, Attempt, AuditEntry, Delivery, Incident, Notification, Run, Step, Worker
from tests.config.console.test_pages import NOUNS, OTHERS
from tests.support.api import Api
from tests.support.console import list_of, make_failed_run, make_one_of_each, page_of
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
FULL = bool(os.environ.get("WAKEFUL_FULL"))  # otherwise every third page
LEAKED = "leaked-into-a-row-0123456789"
TEXTS = {
    Run: "error status_reason key", Attempt: "error traceback", Step: "error", Approval: "question detail reason",
    Notification: "text topic", Delivery: "reason", EventDelivery: "reason", Alarm: "text remedy", Incident: "cause",
    MemoryNote: "text", ChecklistItem: "text", Trigger: "paused_reason", Schedule: "paused_note", Worker: "stopped_reason",
    TaskResult: "result traceback",
}  # fmt: skip
VALUES = {Run: "input result", Step: "output arguments", Approval: "arguments"}
LISTS = (
    "events runs triggers sources schedules approvals notifications recipients checklists budgets incidents subscriptions memory"
    " sessions replays"
)


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
    paths = [*map(list_of, NOUNS), *(page_of(noun, rows[noun]) for noun in NOUNS), *OTHERS]
    paths = [*(paths if FULL else paths[::3]), page_of("triggers_event", event), page_of("runs_run", run)]
    api = Api()
    asked = [f"/api/v1/{name}/?limit=1" for name in LISTS.split()]
    asked += [f"/api/v1/events/{event.pk}/", f"/api/v1/runs/{run.pk}/"]
    answers = {path: api.client.get(path).json() for path in asked}
    pages = {path: Form(admin_client.get(path).content.decode()).found for path in paths}
    assert answers["/api/v1/events/?limit=1"]["next"]

    redaction.know(*PIECES, LEAKED)

    leaks = []
    for path, form in pages.items():
        page = admin_client.get(path).content.decode()
        assert Form(page).found == form, path
        assert (MARK in page) >= (path in paths[-2:]), path
        leaks += [path] if LEAKED in page else []
    for path, answer in answers.items():
        again = api.client.get(path).json()
        assert form_of(again) == form_of(answer), path
        assert again.get("next") == answer.get("next"), path
        assert (MARK in json.dumps(again)) >= (path in asked[-2:]), path
        leaks += [path] if LEAKED in json.dumps(again) else []
    assert leaks == []


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
            told = json.loads(line)
            assert told["level"] == "error" and told["exception"][0]["exc_value"].startswith(MARK)
            assert spoken not in line and MARK in told["event"]


def _formatter(format: str) -> logging.Formatter:
    given = dict(logs.configuration(format=format, level="INFO")["formatters"]["structlog"])
    make = given.pop("()")
    formatter: logging.Formatter = make(**given)
    return formatter


def test_a_conversation_keeps_its_form(forgotten: None) -> None:
    spoken = " | ".join(PIECES)
    told: list[ModelMessage] = [
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

    clean = redacted_messages(told)
    [shown] = redacted_parameters(ModelRequestParameters(function_tools=[tool]), None).function_tools

    assert [[type(part) for part in message.parts] for message in clean] == [
        [type(part) for part in message.parts] for message in told
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
