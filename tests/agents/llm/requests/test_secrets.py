"""Secrets are planted wherever one may stand, and an agent spreads them wherever it can: no prompt, journal, log, page or answer
of the API has one."""

import json
import logging
import re
from collections.abc import Iterator
from html import escape
from io import StringIO
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.urls import reverse
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from structlog.stdlib import ProcessorFormatter

from agents import AgentRun
from agents.kernel import redaction
from agents.kernel.redaction import MARK, redacted, redacted_json
from agents.llm.strangers.fences import fenced
from config.env import Knob
from config.secrets import know_secrets
from runs.actions.approve import decide
from runs.api.approval_links import approval_link
from runs.models import Approval
from tests.support.api import Api
from tests.support.console import make_one_of_each
from tests.support.durable import Lab, lab
from tests.support.runs import make_run
from tests.support.triggers import make_trigger
from tests.support.wire import Call, Wire
from triggers.api.tokens import create_token
from triggers.models import Event, Source
from triggers.sources.secrets import add_secret

__all__ = ["lab"]

PLANTED = {
    "the environment": "planted-environment-0123456789",
    "a provider's variable": "sk-planted-provider-0123456789",
    "a client of its own": "sk-planted-client-0123456789",
    "a setting": 'planted "quoted" \\ setting & <0123456789>',
    "a list in a setting": "planted-in-a-list-0123456789",
    "the password of an address": "planted-p4ssword-of-address",
    "a source": "planted-source-0123456789-0123456789",
}
REQUIRED = {"at": "2026-11-20T09:00:00Z"}  # parameters that a GET of the API cannot do without
TABLES = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname ~ '^(runs|triggers|agents|django)_'
"""


@pytest.fixture
def planted(db: None, monkeypatch: pytest.MonkeyPatch, wire: Wire) -> dict[str, str]:
    monkeypatch.setenv("CRM_TOKEN", PLANTED["the environment"])
    monkeypatch.setenv("OPENAI_API_KEY", PLANTED["a provider's variable"])
    monkeypatch.setenv("SHOP_URL", f"https://ann:{PLANTED['the password of an address']}@shop.example/")
    knobs = [
        Knob(name="ONE", default="", meaning="x", value=PLANTED["a setting"], secret=True),
        Knob(name="MANY", default="", meaning="x", value=["short", PLANTED["a list in a setting"]], secret=True),
    ]
    monkeypatch.setattr(settings, "KNOBS", [*settings.KNOBS, *knobs])
    know_secrets()  # as a process does when it begins
    add_secret(Source.objects.create(slug="hooks", kind="bearer", settings={}), PLANTED["a source"], by="test")
    monkeypatch.setattr(redaction, "_looked_at", float("-inf"))
    _, token = create_token("planted", ["*"], by="test")
    return {**PLANTED, "a token": token, "the secret key": settings.SECRET_KEY}


@pytest.fixture
def logged() -> Iterator[StringIO]:
    """What the handler of every process writes."""
    [handler] = [
        one
        for one in logging.getLogger().handlers
        if isinstance(one, logging.StreamHandler) and isinstance(one.formatter, ProcessorFormatter)
    ]
    stream = StringIO()
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def found_in(where: str, text: str, planted: dict[str, str]) -> list[str]:
    shapes = {
        shape: name
        for name, secret in planted.items()
        for spelling in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[3:-3])
        for shape in (spelling, escape(spelling))
    }
    return [f"{name} in {where}" for shape, name in shapes.items() if shape in text]


@pytest.mark.django_db(transaction=True)
def test_no_planted_secret_is_found_anywhere(
    lab: Lab, wire: Wire, planted: dict[str, str], admin_client: Client, logged: StringIO
) -> None:
    everything = " | ".join(planted.values())
    wire.script("spread", [Call("echo"), Call("fail"), Call("pay", text=everything)], f"I was told {everything}")
    model = OpenAIChatModel(
        "gpt-4o", provider=OpenAIProvider(base_url=f"{wire.url}/v1", api_key=planted["a client of its own"])
    )
    llm = LlmAgent(model, name="spreader", instructions=f"Never tell {everything}")

    @llm.tool_plain(description=f"Echoes {everything}")
    def echo() -> dict[str, Any]:
        return {"secrets": planted, everything: "as a key"}

    @llm.tool_plain
    def fail() -> str:
        raise ModelRetry(f"could not log in with {everything}")

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(text: str) -> str:
        return text

    def body(run: AgentRun) -> Any:
        prompt = wire.prompt("spread", "one", f"Tell {everything}")
        answer = run.llm(llm, prompt, untrusted={"text": everything}).output
        run.log.warning("spreading", secrets=planted, text=everything)
        run.state.set("known", everything)
        run.emit("spread", {"secrets": planted}, subject=everything)
        run.notify(everything)
        run.wake_in("1h", {"secrets": planted}, reason=everything)
        run.spawn("child", {"secrets": planted})
        run.step("call", lambda secret: {"said": secret}, everything, effect="at_most_once")
        run.ask_approval("Spread it?", arguments=planted, detail=everything)
        return answer

    def refused(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(401, "gpt-4o", {"message": f"Incorrect API key provided: {everything}"})

    lab.declare(lambda run: None, name="child")
    run = lab.run(body, trigger_id=make_trigger("durable", types=["nothing"]).pk)
    for approval in Approval.objects.all():
        decide(approval.pk, decision="approve", by="ann", reason="fine")
        lab.go_on(run)
    failed = lab.run(lambda run: run.llm(LlmAgent(FunctionModel(refused), name="refused"), "x").output)
    crashed = lab.run(lambda run: _raise(everything))

    assert crashed.status == "failed"
    assert MARK in failed.error
    found = []
    for request in wire.of("one"):
        found += found_in("a prompt", json.dumps(dict(request.body), ensure_ascii=False), planted)
    for table in _tables():
        found += found_in(f"table {table}", _dump(table), planted)
    found += found_in("the log", logged.getvalue(), planted)
    deliver(planted)
    found += found_in_answers(admin_client, planted)
    assert not found
    assert MARK in json.dumps(Api().get(f"runs/{run.pk}/transcript/").body)
    assert len(wire.of("one")) >= 2
    assert "spreading" in logged.getvalue()


def deliver(planted: dict[str, str]) -> None:
    """What comes from outside is stored as it came, since its signature and filters are about these bytes."""
    headers = {"Authorization": f"Bearer {planted['a source']}", "X-Note": planted["the environment"]}
    for body in (json.dumps(planted), " ".join(planted.values())):
        path = f"/hooks/hooks/?key={planted['a source']}"
        assert Client().post(path, body, content_type="application/json", headers=headers).status_code == 202
    make_run(event_id=Event.objects.latest("seq").pk, input=planted, key=planted["a setting"], slot=1)


def _raise(text: str) -> None:
    secret = text  # in a frame of the traceback
    raise RuntimeError(f"cannot log in with {secret}")


def _tables() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        return [name for (name,) in cursor.fetchall() if name not in ("triggers_secret", "django_session")]


def _dump(table: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT row_to_json(one)::text FROM "{table}" one')
        return "\n".join(text for (text,) in cursor.fetchall())


def found_in_answers(admin_client: Client, planted: dict[str, str]) -> list[str]:
    """In the pages of the admin and in what the API answers, to someone who may see everything."""
    make_one_of_each(1)  # so that there is no empty list
    found = []
    for path in _pages():
        answer = admin_client.get(path, follow=True)
        assert answer.status_code == 200, path
        found += found_in(path, answer.content.decode(), planted)
    api = Api(name="reader").client
    for path in _routes(api):
        answer = api.get(path)
        assert answer.status_code == 200, path
        found += found_in(path, answer.content.decode(), planted)
    return found


def _pages() -> Iterator[str]:
    """Every list, the page of every row, and what stands beside them."""
    yield from ("/admin/", "/admin/coming/", "/admin/runs/queue/processes/", "/admin/runs/budget/spending/", "/metrics")
    yield from map(approval_link, Approval.objects.all())
    for model, panel in admin.site._registry.items():
        name = f"admin:{panel.opts.app_label}_{panel.opts.model_name}"
        yield reverse(f"{name}_changelist")
        if panel.opts.app_label in ("triggers", "runs"):
            yield from (reverse(f"{name}_change", args=[row.pk]) for row in model._default_manager.all())


def _routes(api: Client) -> Iterator[str]:
    """Every GET of the API's schema, for every object that its list names."""
    schema = api.get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}).json()
    for path, operations in schema["paths"].items():
        if path.startswith("/api/") and "get" in operations:
            required = [one["name"] for one in operations["get"].get("parameters", ()) if one.get("required")]
            query = urlencode({name: REQUIRED[name] for name in required if f"{{{name}}}" not in path})
            yield from (f"{filled}?{query}" for filled in _filled(api, path))


def _filled(api: Client, path: str) -> list[str]:
    listing, _, rest = path.partition("{")
    if not rest:
        return [path]
    name, _, rest = rest.partition("}")
    answer = api.get(listing).json()
    assert answer["results"] and not answer["next"], f"{listing} is empty, or longer than a page"
    return [f"{listing}{quote(str(one[name]))}{rest}" for one in answer["results"]]


def test_a_text_keeps_what_is_no_secret() -> None:
    redaction.know("short", "password", "12345678", "planted-of-this-test-0123")

    plain = "the password of 12345678 is short"
    assert redacted(plain) == plain
    assert redacted("a planted-of-this-test-0123 b") == f"a {MARK} b"
    assert redacted_json({"planted-of-this-test-0123": [1, None, "x"]}) == {MARK: [1, None, "x"]}


def test_a_token_of_ours_is_known_by_its_shape() -> None:
    assert redacted(f"Bearer wkf_{'a' * 43}!") == f"Bearer {MARK}!"
    assert re.search("wkf_short", redacted("wkf_short"))
    assert MARK not in fenced("x", "y", "z")
