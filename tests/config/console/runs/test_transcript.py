"""The conversation with a model, on the page of its run and in the list of runs."""

from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse
from pydantic_ai import Agent as LlmAgent

from agents.llm.providers.builtin import builtin_model
from config.console.runs.transcript import BUILTIN, ERASED
from runs.durable.transcript import transcript_of
from runs.models import Approval, Run, Step
from runs.retention.payloads import remove_payloads
from tests.support.console import list_of, page_of
from tests.support.durable import Lab, lab
from tests.support.llm import Turns
from tests.support.runs import make_run

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)


def page_text(client: Client, run: Run, **query: Any) -> str:
    return client.get(page_of("runs_run", run), query).content.decode()


def talk(lab: Lab, *turns: Any, prompt: str = "Where is Ann?", untrusted: Any = None) -> Run:
    llm = LlmAgent(Turns(*turns).model, name="finder")

    @llm.tool_plain(metadata={"dangerous": True})
    def find(name: str) -> str:
        return f"{name} is here"

    return lab.run(lambda run: run.llm(llm, prompt, untrusted=untrusted).output)


def test_the_page_of_a_run_shows_its_conversation(lab: Lab, admin: Client) -> None:
    run = talk(lab, [("find", {"name": "Ann"})], ("I see", "<i>found</i>"))
    for request in Step.objects.filter(run=run, kind="model"):
        request.usage = {**(request.usage or {}), "cost": None}
        request.save(update_fields=["usage"])

    page = page_text(admin, run)

    assert "2 requests to models · 1 call of tools · " in page and "price unknown" in page
    assert "<pre>Where is Ann?</pre>" in page
    assert "<pre>Ann is here</pre>" in page
    assert "<pre>&lt;i&gt;found&lt;/i&gt;</pre>" in page
    assert "requested by claim 1" in page


def test_thinking_and_long_texts_are_folded(lab: Lab, admin: Client) -> None:
    run = talk(lab, ("I see", "found"), prompt="long " * 400)

    page = page_text(admin, run)

    assert '<summary><span class="transcript-label">Thinking</span> I see</summary>' in page
    assert '<summary><span class="transcript-label">Prompt</span> long long' in page
    assert '<span class="transcript-label">Answer</span><pre>found</pre>' in page


def test_untrusted_data_is_marked_as_such(lab: Lab, admin: Client) -> None:
    run = talk(lab, "found", untrusted="<script>alert(1)</script>")

    page = page_text(admin, run)

    assert "Prompt, untrusted</span><pre>&lt;script&gt;alert(1)&lt;/script&gt;</pre>" in page
    assert "given untrusted data" in page


def test_the_result_of_an_untrusted_tool_is_marked(lab: Lab, admin: Client) -> None:
    llm = LlmAgent(Turns([("fetch", {}), ("look", {})], "done").model, name="reader")

    @llm.tool_plain
    def fetch() -> str:
        return "a page"

    @llm.tool_plain(metadata={"trusted": True})
    def look() -> str:
        return "of mine"

    run = lab.run(lambda run: run.llm(llm, "read").output)

    page = page_text(admin, run)
    assert "Result, untrusted</span><pre>a page</pre>" in page
    assert "Result</span><pre>of mine</pre>" in page
    calls = transcript_of(run).calls[0].turns[0].tool_calls
    assert [call.is_untrusted for call in calls] == [True, False]


def test_a_tool_call_that_needs_approval_links_to_it(lab: Lab, admin: Client) -> None:
    run = talk(lab, [("find", {"name": "Ann"})], "found", untrusted="hello")

    page = page_text(admin, run)

    assert "waits for approval" in page
    approval = Approval.objects.get(wait__run=run)
    assert f'<a class="text-link" href="{page_of("runs_approval", approval)}">approval: open</a>' in page


def test_a_run_without_a_conversation_has_no_such_section(admin: Client) -> None:
    assert 'id="conversation"' not in page_text(admin, make_run())


@pytest.mark.parametrize("page", ["", "1", "99999999999999999999", "x", "-1"])
def test_any_page_may_be_requested(lab: Lab, admin: Client, page: str) -> None:
    run = talk(lab, "found")

    assert "<pre>found</pre>" in page_text(admin, run, turns=page)


def test_pruned_content_is_reported_to_be_gone(lab: Lab, admin: Client) -> None:
    run = talk(lab, "found Ann")
    with transaction.atomic():
        remove_payloads([run.pk])

    page = page_text(admin, run)

    assert ERASED in page and "found Ann" not in page and "1 request to models" in page


def test_the_built_in_model_is_named_wherever_its_run_is_shown(lab: Lab, admin: Client) -> None:
    run = lab.run(lambda run: run.llm(LlmAgent(builtin_model(), name="demo"), "Say something.").output)
    request = Step.objects.get(run=run, kind="model")
    entry = reverse("admin:runs_run_entry", args=[run.pk])

    assert BUILTIN in page_text(admin, run)
    assert BUILTIN in admin.get(list_of("runs_run")).content.decode()
    assert BUILTIN in admin.get(entry, {"key": request.key}).content.decode()


def test_the_list_of_runs_shows_what_their_models_used(lab: Lab, admin: Client) -> None:
    run = talk(lab, "found")
    [request] = Step.objects.filter(run=run, kind="model")
    request.usage = {**(request.usage or {}), "input_tokens": 1200, "output_tokens": 34, "cost": "0.00125"}
    request.save(update_fields=["usage"])

    assert "1,234 tokens · $0.00125" in admin.get(list_of("runs_run")).content.decode()
