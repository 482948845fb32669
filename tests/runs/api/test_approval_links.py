"""A person who has the link may decide; to open it decides nothing."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.actions.approve import decide
from runs.actions.cancel import cancel
from runs.api.approval_links import approval_link, signer
from runs.models import Approval, Run, Wait
from runs.retention.payloads import remove_payloads
from tests.support.journals import ARGUMENTS, make_approval, make_asking_run, make_question
from tests.support.runs import make_run
from tests.support.secrets import known

pytestmark = pytest.mark.django_db

AS_ASKED = '{\r\n  "invoice": 7,\r\n  "cents": 1200\r\n}'  # as a browser sends what the page shows


def text_of(response: Any) -> str:
    """What a person reads, without the markup."""
    body = re.sub(r"<style>.*</style>", "", response.content.decode(), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


def test_the_page_shows_question_and_deadline_and_decides_nothing() -> None:
    approval = make_asking_run()
    Approval.objects.update(detail="The customer wrote\n<b>twice</b>.")
    Wait.objects.update(due_at=timezone.now() + timedelta(days=1))

    response = Client().get(approval_link(approval))

    page = response.content.decode()
    assert response.status_code == 200
    assert "Refund?" in page and "&lt;b&gt;twice&lt;/b&gt;" in page and "<b>" not in page
    assert "&quot;cents&quot;: 1200" in page
    assert "then it counts as denied" in text_of(response)
    assert [f'value="{choice}"' in page for choice in ("approve", "edit", "deny")] == [True] * 3
    assert Approval.objects.get().status == "pending"


def test_times_are_those_of_the_site_and_the_run_is_one_click_away(settings: Any) -> None:
    settings.WAKEFUL_ZONE = "Europe/Vienna"
    approval = make_asking_run()
    Wait.objects.update(created_at=datetime(2026, 1, 31, 23, 30, tzinfo=UTC))
    Wait.objects.update(due_at=timezone.now() + timedelta(days=1))

    page = Client().get(approval_link(approval)).content.decode()

    assert "2026-02-01 00:30:00 Europe/Vienna" in page and "UTC" not in page
    assert reverse("admin:runs_run_change", args=[approval.wait.run_id]) in page


def test_opening_a_link_decides_nothing() -> None:
    approval = make_asking_run()
    link = approval_link(approval)

    for method in ("get", "head", "options"):
        getattr(Client(), method)(link, {"decision": "approve"})

    assert Approval.objects.get().status == "pending"


def test_no_trace_of_the_link_is_kept_or_passed_on() -> None:
    response = Client().get(approval_link(make_asking_run()))

    assert "no-store" in response["Cache-Control"]
    assert "noindex" in response["X-Robots-Tag"]
    assert response["Referrer-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]


def test_the_form_decides_without_a_login() -> None:
    opened = make_asking_run()
    link, client = approval_link(opened), Client()

    decision = {"decision": "approve", "arguments": AS_ASKED, "reason": "fine"}
    response = client.post(link, decision, follow=True)

    approval = Approval.objects.get()
    assert (approval.status, approval.decided_by, approval.reason) == ("approved", "link", "fine")
    assert approval.decided_arguments == ARGUMENTS
    assert Run.objects.get().status == "queued"
    assert "Approved on" in text_of(response) and "<form" not in response.content.decode()


def test_arguments_may_be_edited() -> None:
    approval = make_asking_run()

    Client().post(approval_link(approval), {"decision": "edit", "arguments": '{"cents": 1}'})

    assert (Approval.objects.get().status, Approval.objects.get().decided_arguments) == ("edited", {"cents": 1})


def test_a_denial_ignores_the_arguments() -> None:
    approval = make_asking_run()

    Client().post(approval_link(approval), {"decision": "deny", "arguments": "{"})

    assert Approval.objects.get().status == "denied"


@pytest.mark.parametrize(
    ("decision", "complaint"),
    [
        ({"decision": "edit", "arguments": '{"cents": '}, "not JSON"),
        ({"decision": "edit", "arguments": ""}, "not JSON"),
        ({"decision": "edit", "arguments": "null"}, "requires arguments"),
        ({"decision": "approve", "arguments": '{"cents": 1}'}, "You have edited the arguments"),
        ({"decision": "maybe"}, "maybe"),
        ({}, "required"),
    ],
)
def test_an_invalid_decision_is_shown_again_with_its_input(decision: Any, complaint: str) -> None:
    approval = make_asking_run()

    response = Client().post(approval_link(approval), decision)

    assert response.status_code == 400
    assert complaint in text_of(response)
    if decision.get("arguments"):
        assert decision["arguments"].replace('"', "&quot;") in response.content.decode()
    assert Approval.objects.get().status == "pending"


def test_a_letter_is_read_with_its_lines() -> None:
    letter = {"subject": "Hello", "text": "Dear <Ada>,\nplease pay."}
    approval = make_approval(make_run(status="waiting"), status="open", digest="d", arguments=letter)

    page = Client().get(approval_link(approval)).content.decode()

    assert "<dt>text</dt><dd>Dear &lt;Ada&gt;,\nplease pay.</dd>" in page
    assert "<textarea" in page


def test_a_secret_is_not_shown_and_what_is_shown_may_be_approved() -> None:
    secret = "correct-horse-battery"
    arguments = {"key": secret, "text": f"Dear Ada,\n{secret}"}
    approval = make_approval(make_run(status="waiting"), status="open", question=f"Send {secret}?", arguments=arguments)
    Approval.objects.update(detail=f"With {secret}.")

    with known(secret):
        page = Client().get(approval_link(approval)).content.decode()
        shown = unescape(re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, flags=re.S)[0])
        Client().post(approval_link(approval), {"decision": "approve", "arguments": shown.replace("\n", "\r\n")})

    assert secret not in page and page.count("[secret]") >= 5
    decided = Approval.objects.get()
    assert (decided.status, decided.decided_arguments) == ("approved", arguments)


def test_a_text_that_turns_the_direction_of_writing_is_shown_as_it_is() -> None:
    arguments = {"to": "AT12\u202e43", "text": "Dear Ada,\nplease."}
    approval = make_approval(make_run(status="waiting"), status="open", arguments=arguments)

    page = Client().get(approval_link(approval)).content.decode()

    assert "\u202e" not in page and page.count(r"AT12\u202e43") == 2


def test_a_question_without_arguments_has_none_to_edit() -> None:
    approval = make_approval(make_run(status="waiting"), status="open", digest="d")

    page = Client().get(approval_link(approval)).content.decode()

    assert "<textarea" not in page and 'value="edit"' not in page
    assert Client().post(approval_link(approval), {"decision": "edit", "arguments": "1"}).status_code == 400
    assert Client().post(approval_link(approval), {"decision": "approve"}).status_code == 302


def test_a_form_from_elsewhere_is_refused() -> None:
    approval = make_asking_run()
    strict = Client(enforce_csrf_checks=True)
    link = approval_link(approval)

    assert strict.post(link, {"decision": "approve"}).status_code == 403
    token = strict.get(link).cookies["csrftoken"].value
    assert strict.post(link, {"decision": "approve", "csrfmiddlewaretoken": token}).status_code == 302


def test_a_decision_by_link_names_the_logged_in_user() -> None:
    approval = make_asking_run()
    client = Client()
    client.force_login(User.objects.create(username="ada"))

    client.post(approval_link(approval), {"decision": "deny"})

    assert Approval.objects.get().decided_by == "link:ada"


def test_a_used_link_shows_the_decision_and_not_the_question() -> None:
    approval = make_asking_run()
    link = approval_link(approval)
    decide(approval.id, decision="edit", by="admin:ada", arguments={"cents": 1}, reason="less")

    response = Client().get(link)
    again = Client().post(link, {"decision": "deny"})

    when = Approval.objects.get().decided_at
    assert when is not None
    for answer in (response, again):
        assert f"Edited on {when:%Y-%m-%d %H:%M:%S} UTC" in text_of(answer)
        page = answer.content.decode()
        assert [
            word for word in ("Refund", "cents", "less", "ada", approval.wait.run.agent, "<form") if word in page
        ] == []
    assert (response.status_code, again.status_code) == (200, 409)
    assert Approval.objects.get().decision == "edit"


def test_a_refused_decision_leaves_no_link_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The link is still good after it."""
    link = approval_link(make_asking_run())

    assert Client().post(link, {"decision": "nonsense"}).status_code == 400
    assert link.split("/")[-2] not in caplog.text


def test_an_expired_link_shows_its_expiry_even_before_the_run_is_woken() -> None:
    approval = make_asking_run()
    Wait.objects.update(due_at=timezone.now() - timedelta(seconds=1))

    response = Client().get(approval_link(approval))

    assert "It has expired" in text_of(response) and "<form" not in response.content.decode()
    assert Client().post(approval_link(approval), {"decision": "approve"}).status_code == 409


def test_the_link_of_a_stopped_run_shows_it() -> None:
    approval = make_asking_run()
    cancel(approval.wait.run_id, by="bob")

    assert "its run stopped before a decision" in text_of(Client().get(approval_link(approval)))


def test_a_link_works_after_retention_has_removed_the_digest() -> None:
    approval = make_asking_run()
    link = approval_link(approval)
    decide(approval.id, decision="deny", by="ada")
    cancel(approval.wait.run_id, by="ada")
    remove_payloads([approval.wait.run_id])

    assert "Denied on" in text_of(Client().get(link))


@pytest.mark.parametrize("token", ["nonsense", signer().sign_object(["no-uuid", "d"]), signer().sign_object(7)])
def test_a_link_that_was_not_made_here_leads_nowhere(token: str) -> None:
    assert Client().get(f"/approvals/{token}/").status_code == 404
    assert Client().post(f"/approvals/{token}/", {"decision": "approve"}).status_code == 404


def test_a_changed_link_leads_nowhere() -> None:
    link = approval_link(make_asking_run())

    assert (
        Client().post(link[:-3] + ("AA/" if link[-3:] != "AA/" else "BB/"), {"decision": "approve"}).status_code == 404
    )


def test_a_link_is_valid_for_its_own_question_only() -> None:
    approval = make_asking_run()
    link = approval_link(approval)
    Approval.objects.update(digest="0" * 64)

    assert Client().post(link, {"decision": "approve"}).status_code == 404


def test_a_question_is_answered_in_words() -> None:
    approval = make_question()

    page = Client().get(approval_link(approval)).content.decode()
    assert "Which region?" in page and 'name="answer"' in page and 'name="arguments"' not in page
    assert Client().post(approval_link(approval), {"decision": "edit", "answer": ""}).status_code == 400
    assert Client().post(approval_link(approval), {"decision": "approve", "answer": "eu-west"}).status_code == 400
    assert Approval.objects.get().status == "pending"
    Client().post(approval_link(approval), {"decision": "edit", "answer": "eu-west"})

    answered = Approval.objects.get()
    assert (answered.status, answered.decided_arguments) == (
        "edited",
        {"question": "Which region?", "answer": "eu-west"},
    )


@pytest.mark.parametrize(("decision", "status"), [("approve", "approved"), ("deny", "denied")])
def test_a_question_is_answered_with_yes_or_no(decision: str, status: str) -> None:
    approval = make_question()

    Client().post(approval_link(approval), {"decision": decision, "reason": "the cheaper one"})

    assert (Approval.objects.get().status, Approval.objects.get().reason) == (status, "the cheaper one")
