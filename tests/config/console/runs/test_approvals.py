"""The inbox of what runs ask: decided once, for what was shown, by those who may."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from runs.models import Approval, AuditEntry, Run
from runs.states import RunStatus
from tests.config.console.test_actions import press
from tests.support.console import list_of, page_of
from tests.support.journals import make_approval, make_question, make_step, make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_event

NOUN = "runs_approval"


def make_open_approval(**fields: object) -> Approval:
    return make_approval(make_run(status=RunStatus.WAITING, agent="refunds"), status="open", **fields)


def questions(client: Client, **query: str) -> list[str]:
    return [approval.question for approval in client.get(list_of(NOUN), query).context["cl"].result_list]


@pytest.fixture
def approver(db: None) -> Client:
    user = User.objects.create_user("ann", password="x", is_staff=True)
    user.groups.add(Group.objects.get(name="approver"))
    client = Client()
    client.force_login(user)
    return client


def test_pending_ones_come_first_and_the_longest_waiting_on_top(admin: Client) -> None:
    make_approval(make_run(status="succeeded"), question="decided")
    make_approval(make_run(status="succeeded"), question="expired", status="expired")
    make_open_approval(question="first")
    make_open_approval(question="second")

    assert questions(admin) == ["first", "second"]
    assert questions(admin, status="decided") == ["decided"]
    assert questions(admin, status="over") == ["expired"]
    assert len(questions(admin, status="all")) == 4


def test_the_page_shows_what_tainted_the_run(admin: Client) -> None:
    event = make_event(is_tainted=True)
    parent, child = make_run(is_tainted=True, status="succeeded"), make_run(is_tainted=True, status="succeeded")
    clean = make_run(status="succeeded")
    run = make_run(status="waiting", event_id=event.pk, parent_id=parent.pk, is_tainted=True)
    make_wait(run, "children", status="done", children=[child.pk, clean.pk])
    for key, is_untrusted in (("llm triage#1", True), ("llm summary#1", False)):
        make_step(run, key, kind="llm", output={"untrusted": is_untrusted})
    make_step(run, "state seen#1", output=["x", 1, True])
    make_step(run, "state own#1", output=["x", 1, False])

    shown = admin.get(page_of(NOUN, make_approval(run, status="open"))).content.decode()

    assert "It has seen untrusted data" in shown
    for cause in (event.pk, parent.pk, child.pk, "untrusted= of <code>llm triage#1<", "<code>state seen#1<"):
        assert str(cause) in shown.partition("By: ")[2]
    for other in (str(clean.pk), "llm summary#1", "state own#1"):
        assert other not in shown
    assert "It has seen untrusted data" not in admin.get(page_of(NOUN, make_open_approval())).content.decode()


def test_a_taint_that_is_not_recorded_is_named_by_its_possible_causes(admin: Client) -> None:
    approval = make_approval(make_run(status="waiting", is_tainted=True), status="open")

    assert "By: the result of an untrusted tool, or run.taint()." in admin.get(page_of(NOUN, approval)).content.decode()


def test_approver_reads_and_decides_from_the_inbox(approver: Client) -> None:
    approval = make_open_approval(question="Refund 2026-118?", arguments={"cents": 12900})

    assert "Refund 2026-118?" in approver.get(list_of(NOUN)).content.decode()
    assert "&quot;cents&quot;: 12900" in approver.get(page_of(NOUN, approval)).content.decode()
    press(approver, NOUN, approval, "approve", digest=approval.digest, reason="fine")

    approval.refresh_from_db()
    assert (approval.decision, approval.decided_by, approval.reason) == ("approve", "admin:ann", "fine")
    assert Run.objects.get(pk=approval.wait.run_id).status == RunStatus.QUEUED
    assert AuditEntry.objects.get(kind="approval").by == "admin:ann"


@pytest.mark.parametrize(
    ("typed", "message"),
    [("{", "This is not JSON: "), ('{"a": 1, "a": 2}', "duplicate name"), ("", "required"), ("null", "required")],
)
def test_wrong_json_keeps_the_dialog_open_with_the_error_and_what_was_typed(
    admin: Client, typed: str, message: str
) -> None:
    approval = make_open_approval(arguments={"cents": 12900})

    answer = press(admin, NOUN, approval, "edit", arguments=typed)

    assert message in str(answer.context["form"].errors["arguments"])
    assert answer.context["form"]["arguments"].value() == typed
    assert Approval.objects.get(pk=approval.pk).status == "pending"


@pytest.mark.parametrize("typed", ["[1]", "5", '"x"', '{"cents": "a\\u0000"}', '{"cents": "\\ud800"}'])
def test_arguments_of_another_shape_keep_the_dialog_open(admin: Client, typed: str) -> None:
    approval = make_open_approval(arguments={"cents": 12900})

    answer = press(admin, NOUN, approval, "edit", arguments=typed)

    assert answer.context["form"].errors["arguments"]
    assert Approval.objects.get(pk=approval.pk).status == "pending"


@pytest.mark.parametrize("choice", ["approve", "deny"])
def test_a_reason_that_cannot_be_stored_keeps_the_dialog_open(admin: Client, choice: str) -> None:
    approval = make_open_approval()

    answer = press(admin, NOUN, approval, choice, reason="a\x00b")

    assert "null characters" in str(answer.context["form"].errors["reason"]).lower()
    assert Approval.objects.get(pk=approval.pk).status == "pending"


def test_decision_for_something_else_than_was_shown_is_refused(admin: Client) -> None:
    approval = make_open_approval(digest="today's")

    answer = press(admin, NOUN, approval, "approve", digest="yesterday's")

    assert "has another question than the one shown" in answer.content.decode()
    assert Approval.objects.get(pk=approval.pk).status == "pending"


def test_dialog_is_bound_to_what_it_shows(admin: Client) -> None:
    approval = make_open_approval(digest="d1ge57")

    dialog = admin.get(page_of(NOUN, approval).replace("change", "approve")).content.decode()

    assert 'value="d1ge57"' in dialog


def test_only_a_pending_approval_has_buttons_and_edit_only_with_arguments(admin: Client) -> None:
    pages = {
        "bare": make_open_approval(),
        "with arguments": make_open_approval(arguments={"n": 1}),
        "decided": make_approval(make_run(status="succeeded"), arguments={"n": 1}),
    }

    offered = {
        name: {action["title"] for action in admin.get(page_of(NOUN, approval)).context["actions_detail"]}
        for name, approval in pages.items()
    }

    assert offered == {
        "bare": {"Approve", "Deny"},
        "with arguments": {"Approve", "Edit and approve", "Deny"},
        "decided": set(),
    }


def test_page_shows_until_when_and_what_comes_after(admin: Client) -> None:
    approval = make_open_approval(question="Call her?", on_expiry="fail")
    approval.wait.due_at = timezone.now() + timedelta(hours=2, minutes=1)
    approval.wait.save()

    page = admin.get(page_of(NOUN, approval)).content.decode()

    assert "refunds asks: Call her?" in page
    assert "(in 2 h 1 min); after that it fails the run." in page or "(in 2 h); after that it fails the run." in page


@pytest.mark.parametrize("form", ["approve", "edit", "deny"])
def test_the_form_of_an_approval_that_is_gone_is_not_found(admin_client: Client, form: str) -> None:
    assert admin_client.get(f"/admin/runs/approval/{uuid4()}/{form}/").status_code == 404


def test_a_question_of_a_model_has_a_button_for_the_answer(approver: Client) -> None:
    plain, question = make_open_approval(arguments={"cents": 5}), make_question()

    assert ["Answer" in buttons_of(approver, one) for one in (plain, question)] == [False, True]
    assert ["Edit and approve" in buttons_of(approver, one) for one in (plain, question)] == [True, False]
    press(approver, NOUN, question, "answer", answer="eu-west", digest=question.digest)

    question.refresh_from_db()
    assert question.status == "edited"
    assert question.decided_arguments == {"question": "Which region?", "answer": "eu-west"}
    page = approver.get(page_of(NOUN, question)).content.decode()
    assert "eu-west" in page and "Answered by admin:ann" in page


def buttons_of(client: Client, approval: Approval) -> list[str]:
    page = client.get(page_of(NOUN, approval)).content.decode()
    return [
        name for name in ("Answer", "Approve", "Edit and approve", "Deny") if f"{name}\n" in page or f">{name}<" in page
    ]
