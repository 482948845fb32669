"""Forking, signalling, resolving and deciding over HTTP."""

from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import DjangoAssertNumQueries
from uuid_utils.compat import uuid7

from runs.models import Approval, Run, Step
from runs.states import RunStatus
from tests.support.api import Api
from tests.support.journals import ARGUMENTS, make_approval, make_asking_run, make_step, make_wait
from tests.support.runs import make_run
from triggers.models import Event

pytestmark = pytest.mark.django_db


def test_a_run_is_read_with_its_journal() -> None:
    run = make_run(status=RunStatus.WAITING, begun_version="1", chain=["first"])
    make_step(run, "a", output={"n": 1})
    make_step(run, "charge", status="started", arguments=[7])
    make_wait(run, "event", event_type="invoice.paid", match={"id": 7}, key="event:invoice.paid#1", status="done")
    approval = make_approval(run, status="open")

    body = Api(["runs.view_run"]).get(f"runs/{run.id}/").body

    assert (body["begun_version"], body["chain"], body["step_count"]) == ("1", ["first"], 2)
    shown = ("key", "status", "effect", "output", "arguments", "idempotency_key")
    assert [[step[name] for name in shown] for step in body["steps"]] == [
        ["a", "done", "transactional", {"n": 1}, None, f"{run.id}:a"],
        ["charge", "started", "at_most_once", None, [7], f"{run.id}:charge"],
    ]
    assert [(wait["kind"], wait["status"], wait["match"], wait["approval"]) for wait in body["waits"]] == [
        ("event", "done", {"id": 7}, None),
        ("approval", "open", None, str(approval.id)),
    ]


def test_a_long_journal_shows_its_first_steps_and_its_last_waits(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    run = make_run()
    for n in range(201):
        make_step(run, f"s:{n}")
        make_wait(run, status="done", key=f"sleep#{n}")
    api = Api()

    with django_assert_max_num_queries(9):
        body = api.get(f"runs/{run.id}/").body

    assert (body["step_count"], len(body["steps"]), len(body["waits"])) == (201, 200, 200)
    assert (body["steps"][-1]["key"], body["waits"][0]["key"]) == ("s:199", "sleep#1")


def test_a_large_output_is_left_out_and_its_size_shown() -> None:
    run = make_run()
    make_step(run, "large", output=list(range(100_000)))

    [step] = Api().get(f"runs/{run.id}/").body["steps"]

    assert step["output"] is None and step["output_size"] > 64 * 1024


def test_fork_answers_with_the_new_run() -> None:
    origin = make_run(status=RunStatus.FAILED, input={"a": 1})
    make_step(origin, "a")
    make_step(origin, "b", status="failed")

    answer = Api(["runs.fork_run"]).post(f"runs/{origin.id}/fork/", {"step": "b", "input": {"a": 2}})

    assert answer.status == 200
    assert (answer.body["forked_from_id"], answer.body["status"]) == (str(origin.id), "queued")
    assert answer.body["input"] == {"a": 2}
    assert [step["key"] for step in answer.body["steps"]] == ["a"]


def test_signal_makes_an_event_for_the_run() -> None:
    run = make_run()

    answer = Api(["runs.signal_run"]).post(f"runs/{run.id}/signal/", {"name": "go", "data": {"fast": True}})

    assert (answer.status, answer.body["id"]) == (200, str(run.id))
    event = Event.objects.get()
    assert (event.type, event.subject, event.data) == (
        "run.signal", str(run.id), {"run": str(run.id), "name": "go", "data": {"fast": True}},
    )  # fmt: skip


def test_resolve_answers_with_the_run() -> None:
    run = make_run(status=RunStatus.UNCERTAIN)
    make_step(run, "charge", status="started")

    answer = Api(["runs.resolve_run"]).post(f"runs/{run.id}/resolve/", {"outcome": "happened", "result": {"id": 1}})

    assert (answer.status, answer.body["status"]) == (200, "queued")
    assert Step.objects.get().output == {"id": 1}


def test_a_question_that_the_caller_has_not_seen_is_not_resolved() -> None:
    run = make_run(status=RunStatus.UNCERTAIN, epoch=3)
    make_step(run, "charge", status="started")
    api = Api(["runs.resolve_run"])

    refused = api.post(f"runs/{run.id}/resolve/", {"outcome": "fail", "epoch": 2})

    assert (refused.status, refused.body["status"]) == (409, "uncertain")
    assert "another question" in refused.body["detail"]
    assert api.post(f"runs/{run.id}/resolve/", {"outcome": "fail", "epoch": 3}).body["status"] == "failed"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("resolve", {"outcome": "fail", "epoch": -1}, "epoch"),
        ("fork", {"step": "nowhere"}, "step"),
        ("fork", {"stepp": "a"}, "stepp"),
        ("signal", {}, "name"),
        ("resolve", {"outcome": "maybe"}, "outcome"),
        ("resolve", {"outcome": "fail", "result": 1}, "result"),
    ],
)
def test_an_invalid_value_is_400_naming_the_field(path: str, body: Any, field: str) -> None:
    run = make_run(status=RunStatus.UNCERTAIN)

    answer = Api().post(f"runs/{run.id}/{path}/", body)

    assert (answer.status, list(answer.body)) == (400, [field])
    assert Run.objects.count() == 1


@pytest.mark.parametrize(("path", "body"), [("signal", {"name": "go"}), ("resolve", {"outcome": "fail"})])
def test_an_action_on_a_finished_run_is_409_with_its_status(path: str, body: Any) -> None:
    run = make_run(status=RunStatus.SUCCEEDED)

    answer = Api().post(f"runs/{run.id}/{path}/", body)

    assert (answer.status, answer.body["status"], set(answer.body)) == (409, "succeeded", {"detail", "status"})
    assert not Event.objects.exists()


# --- Approvals ---


def test_approvals_are_listed_by_their_status() -> None:
    pending = make_asking_run()
    run = make_run()
    ended = {
        "approved": make_approval(run),
        "edited": make_approval(run, decision="edit"),
        "denied": make_approval(run, decision="deny"),
        "expired": make_approval(run, status="expired"),
        "closed": make_approval(run, status="closed"),
    }
    api = Api(["runs.view_approval"])

    def found(**query: str) -> dict[str, str]:
        return {one["id"]: one["status"] for one in api.get("approvals/", **query).body["results"]}

    for status, approval in {"pending": pending, **ended}.items():
        assert found(status=status) == {str(approval.id): status}
    assert len(found()) == 6
    assert api.get("approvals/", status="maybe").status == 400


def test_an_approval_is_read_with_its_question() -> None:
    approval = make_asking_run()

    body = Api(["runs.view_approval"]).get(f"approvals/{approval.id}/").body

    assert (body["question"], body["arguments"], body["digest"]) == ("Refund?", ARGUMENTS, approval.digest)
    assert (body["run"], body["agent"], body["status"]) == (str(approval.wait.run_id), "greeter", "pending")


def test_only_who_may_decide_is_given_the_link() -> None:
    approval = make_asking_run()

    assert Api(["runs.view_approval"]).get(f"approvals/{approval.id}/").body["url"] is None
    url = Api(["runs.view_approval", "runs.decide_approval"], name="boss").get(f"approvals/{approval.id}/").body["url"]

    assert url.startswith("http://testserver/approvals/")
    assert Client().get(url).status_code == 200


def test_decide_answers_with_the_approval() -> None:
    approval = make_asking_run()
    request = {"decision": "edit", "arguments": {"cents": 1}, "reason": "less", "digest": approval.digest}

    answer = Api(["runs.decide_approval"]).post(f"approvals/{approval.id}/decide/", request)

    assert (answer.status, answer.body["status"], answer.body["decided_by"]) == (200, "edited", "token:ci")
    assert (answer.body["decided_arguments"], answer.body["reason"]) == ({"cents": 1}, "less")
    assert Run.objects.get().status == "queued"


def test_a_second_decision_is_409_with_the_first() -> None:
    approval = make_asking_run()
    api = Api()
    api.post(f"approvals/{approval.id}/decide/", {"decision": "deny"})

    answer = api.post(f"approvals/{approval.id}/decide/", {"decision": "approve"})

    assert (answer.status, answer.body["status"]) == (409, "denied")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "decision"),
        ({"decision": "maybe"}, "decision"),
        ({"decision": "edit"}, "arguments"),
        ({"decision": "approve", "arguments": {"cents": 1}}, "arguments"),
        ({"decision": "approve", "arguements": {}}, "arguements"),
    ],
)
def test_a_decision_that_makes_no_sense_is_400_naming_the_field(body: Any, field: str) -> None:
    approval = make_asking_run()

    answer = Api().post(f"approvals/{approval.id}/decide/", body)

    assert (answer.status, list(answer.body)) == (400, [field])
    assert Approval.objects.get().status == "pending"


@pytest.mark.parametrize("id", [uuid7(), "no-uuid"])
def test_an_unknown_approval_is_404(id: object) -> None:
    assert Api().get(f"approvals/{id}/").status == 404
    assert Api(name="other").post(f"approvals/{id}/decide/", {"decision": "deny"}).status == 404
