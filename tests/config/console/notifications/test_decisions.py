"""What waits for people stands in the inbox, the urgent first, and is decided there: once, by those who may, for what they saw."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from config.console.notifications import decisions
from config.console.notifications.decisions import what_waits
from runs.actions.approve import decide
from runs.models import Approval, Incident, Run, Step, Wait
from tests.config.console.conftest import LogIn
from tests.support.console import make_incident, make_worker, page_of
from tests.support.journals import make_approval, make_asking_run, make_question, make_step, make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_trigger

pytestmark = pytest.mark.django_db
INBOX, DECIDE = "/admin/inbox/", "/admin/inbox/decide/"


def page_text(client: Client) -> str:
    return client.get(INBOX).content.decode()


def press(client: Client, approval: Approval, decision: str, **more: str) -> str:
    """What the next page shows after a button of the inbox was pressed."""
    given = {"id": str(approval.pk), "guard": approval.digest, "decision": decision, **more}
    return client.post(DECIDE, given, follow=True).content.decode()


def make_doubt() -> Run:
    run = make_run(status="uncertain", status_reason="lost while it called")
    make_step(run, "pay", status="started", arguments={"cents": 1200})
    return run


def titles(client: Client) -> list[str]:
    request = client.get(INBOX).wsgi_request
    return [one.label for one in what_waits(request).waiting]


def test_an_approval_without_an_end_is_in_sight_beside_many_sleeping_runs_and_many_that_have_slept(
    admin: Client,
) -> None:
    make_asking_run()
    for number in range(decisions.MOST + 1):
        make_wait(make_run(status="waiting" if number % 2 else "succeeded"), status="open" if number % 2 else "done")

    assert titles(admin) == ["Approval"]


def test_an_approval_is_decided_in_the_list_with_its_arguments_in_sight(admin: Client) -> None:
    approval = make_asking_run()
    page = page_text(admin)
    assert "Refund?" in page and '<dt>cents</dt><dd class="arguments-json">1200</dd>' in page
    assert f'href="{page_of("runs_run", approval.wait.run)}#conversation"' in page
    assert approval.digest in page

    assert "Approved: the run continues." in press(admin, approval, "approve", text="fine")

    approval.refresh_from_db()
    assert (approval.decision, approval.decided_by, approval.reason) == ("approve", "admin:ada", "fine")
    assert "Refund?" not in page_text(admin)


def test_the_page_of_an_approval_leads_to_its_buttons(admin: Client) -> None:
    approval = make_asking_run()

    assert f'href="{INBOX}#waiting-{approval.pk}"' in admin.get(page_of("runs_approval", approval)).content.decode()
    assert f'id="waiting-{approval.pk}"' in page_text(admin)


def test_a_denial_and_an_answer_reach_the_run(admin: Client) -> None:
    denied, asked = make_asking_run(), make_question()

    assert "Denied" in press(admin, denied, "deny", text="too much")
    assert "Enter an answer first" in press(admin, asked, "answer", text=" ")
    assert "Answered" in press(admin, asked, "answer", text="Tyrol")

    denied.refresh_from_db()
    asked.refresh_from_db()
    assert (denied.decision, denied.reason) == ("deny", "too much")
    assert asked.decided_arguments == {"question": "Which region?", "answer": "Tyrol"}


def test_a_decision_that_comes_too_late_is_refused_with_the_reason(admin: Client) -> None:
    decided, expired = make_asking_run(), make_asking_run()
    decide(decided.pk, decision="deny", by="admin:bob")
    Wait.objects.filter(pk=expired.wait_id).update(due_at=timezone.now() - timedelta(seconds=1))

    assert "was already denied by admin:bob" in press(admin, decided, "approve")
    assert "has expired" in press(admin, expired, "approve")

    assert set(Approval.objects.values_list("decision", flat=True)) == {"deny", ""}


def test_only_what_the_reader_saw_is_decided(admin: Client) -> None:
    approval = make_asking_run()

    for guard in ("", "0" * 64):
        press(admin, approval, "approve", guard=guard)

    approval.refresh_from_db()
    assert approval.decision == ""


def test_an_uncertain_run_is_resolved_for_the_doubt_that_was_shown(admin: Client) -> None:
    run = make_doubt()
    page = page_text(admin)
    assert "did pay happen?" in page and "1200" in page and Step.objects.get().idempotency_key in page
    shown = re.search(r'name="guard" value="(\d+)"', page)
    assert shown
    given = {"id": str(run.pk), "guard": shown[1]}
    # Another tab lets it pay again, and that is lost as well: a doubt about the same step, which this reader has not seen.
    Run.objects.filter(pk=run.pk).update(epoch=F("epoch") + 1)

    for decision in ("did_not_happen", "fail"):
        answer = admin.post(DECIDE, {**given, "decision": decision}, follow=True).content.decode()
        assert "another question" in answer
    run.refresh_from_db()
    assert run.status == "uncertain"

    given["guard"] = str(run.epoch)
    assert "Resolved: the run fails." in admin.post(DECIDE, {**given, "decision": "fail"}, follow=True).content.decode()
    run.refresh_from_db()
    assert run.status == "failed"


def test_an_incident_is_requeued_up_to_the_failure_that_was_shown_or_closed(admin: Client) -> None:
    trigger = make_trigger()
    first, second = (make_run(status="failed", trigger=trigger.slug, trigger_id=trigger.pk) for _ in range(2))
    incident = make_incident(trigger.slug, first)
    guard = re.search(r'name="guard" value="(\d+)"', page_text(admin))
    assert guard
    incident.covered.create(run_id=second.pk)
    given = {"id": str(incident.pk), "guard": guard[1]}

    assert "1 requeued." in admin.post(DECIDE, {**given, "decision": "requeue"}, follow=True).content.decode()
    assert Run.objects.get(pk=second.pk).status == "failed"

    admin.post(DECIDE, {**given, "decision": "close"}, follow=True)
    assert Incident.objects.get().closed_by == "admin:ada"


def test_what_expires_soon_comes_first_and_then_what_is_broken(admin: Client) -> None:
    make_wait(make_run(status="waiting"), "event", event_type="run.signal", match={"name": "go"})
    make_question()
    soon = make_asking_run()
    Wait.objects.filter(pk=soon.wait_id).update(due_at=timezone.now() + timedelta(hours=1))
    make_doubt()

    assert titles(admin) == ["Approval", "Uncertain run", "Question", "Signal"]


def test_of_many_approvals_those_that_expire_first_are_shown(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST", 2)
    asked = [make_asking_run() for _ in range(5)]
    for hours, one in ((9, asked[3]), (5, asked[4])):
        Wait.objects.filter(pk=one.wait_id).update(due_at=timezone.now() + timedelta(hours=hours))

    shown = re.findall(r'name="id" value="([^"]+)"', page_text(admin))

    assert list(dict.fromkeys(shown)) == [str(asked[4].pk), str(asked[3].pk)]


def test_an_incident_is_acknowledged_in_the_list_and_muted_out_of_it(admin: Client) -> None:
    make_worker(version="2.0")
    incident = make_incident("greeter")
    given = {"id": str(incident.pk), "guard": "0"}

    assert "Acknowledged." in admin.post(DECIDE, {**given, "decision": "acknowledge"}, follow=True).content.decode()
    assert titles(admin) == ["Incident"]
    assert "acknowledged by admin:ada" in re.sub(r"<[^>]+>", "", page_text(admin))
    assert (
        "Muted until a worker starts" in admin.post(DECIDE, {**given, "decision": "mute"}, follow=True).content.decode()
    )
    assert titles(admin) == []


def test_what_is_too_long_for_the_list_is_decided_on_its_page(admin: Client) -> None:
    run = make_run(status="waiting")
    approval = make_approval(
        run, status="open", question="Q" * 20_000, detail="D" * 20_000, arguments={"a": "A" * 20_000}
    )
    doubt = make_doubt()
    doubt.steps.update(arguments={"a": "A" * 20_000})

    page = page_text(admin)

    assert len(page) < 100_000 and "D" * 1_000 + "…" in page
    assert 'name="decision"' not in page and page.count("Too long for this list") == 2
    assert page_of("runs_approval", approval) in page and page_of("runs_run", doubt) in page


def test_each_kind_is_for_those_who_may_see_it_and_its_buttons_for_those_who_may_decide(log_in: LogIn) -> None:
    approval, run = make_asking_run(), make_doubt()

    assert titles(log_in("auth.view_group", name="bob")) == []
    viewer = log_in("runs.view_approval", "runs.view_run", name="eve")
    page = page_text(viewer)
    assert "Refund?" in page and "did pay happen?" in page and 'name="decision"' not in page
    for given in ({"id": str(approval.pk), "decision": "approve"}, {"id": str(run.pk), "decision": "fail"}):
        assert viewer.post(DECIDE, {"guard": "pay", **given}).status_code == 403
    assert viewer.get(DECIDE).status_code == 405


def test_a_decision_that_is_none_is_refused_and_one_about_nothing_is_a_message(admin: Client) -> None:
    for given in ({}, {"decision": "sell", "id": "1"}, {"decision": "close", "id": "x" * 50}):
        assert admin.post(DECIDE, given).status_code == 400
    for decision in ("approve", "fail", "requeue", "close"):
        for id_ in ("x", "7" * 40, "0b3f0000-0000-7000-8000-000000000000"):
            assert admin.post(DECIDE, {"decision": decision, "id": id_, "guard": "9" * 30}).status_code == 302


def test_the_list_costs_the_same_for_one_and_for_many(admin: Client) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as captured:
            admin.get(INBOX)
        return len(captured)

    def make_some() -> None:
        make_asking_run(), make_question(), make_doubt(), make_incident(f"t-{Incident.objects.count()}")

    make_some()
    cost()  # fills what is cached for the life of a process
    for_one = cost()
    for _ in range(5):
        make_some()

    assert cost() == for_one == 13
