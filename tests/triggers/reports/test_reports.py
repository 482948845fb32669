"""Every end of a run that has reports is reported once, in the transaction that ends it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from agents import AgentRun, Permanent
from runs import outbox, waits
from runs.actions.cancel import cancel
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.actions.resolve import resolve
from runs.db.sql import execute as execute_sql
from runs.executor import execute
from runs.models import Notification, OutboxMessage, Run
from runs.ports import ports
from runs.processes.rescue import lost
from runs.transitions.leave import take_blocked_away
from tests.support.durable import Lab, lab
from tests.support.journals import make_step
from tests.support.notifying import make_recipient
from tests.support.outbound import subscribe
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event, EventDelivery, Subscription, Trigger
from triggers.reports.deliver import deliver_reports

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

OPS = {"on": "end", "notify": ["ops"]}


def watched(lab: Lab, body: Callable[[AgentRun], Any], *reports: dict[str, Any], **fields: Any) -> Trigger:
    """A trigger whose runs have these reports."""
    lab.declare(body, "greeter", durable=fields.pop("durable", True))
    policy = {"retries": 0, "reports": list(reports or [OPS]), **fields.pop("policy", {})}
    return make_trigger("greeter", policy=policy, **fields)


def settle(lab: Lab) -> None:
    """All that a worker and a dispatcher would do until nothing is left, with the next half second at once."""
    while True:
        OutboxMessage.objects.filter(topic__in=["run.report", "run.finished"]).update(available_at=Now())
        if not (lab.look() or lab.claim_and_execute()):
            break


def woken(lab: Lab) -> Run:
    make_event()
    settle(lab)
    return Run.objects.get()


def told() -> list[str]:
    return list(Notification.objects.order_by("id").values_list("text", flat=True))


def test_a_success_is_reported_with_its_result_in_words(lab: Lab) -> None:
    make_recipient("ops")
    watched(lab, lambda run: {"sent": 3, "to": "ada"}, durable=False)

    run = woken(lab)

    [notice] = Notification.objects.all()
    assert notice.text.startswith("greeter succeeded after ")
    assert notice.text.endswith(": to: ada, sent: 3")
    assert (notice.run_id, notice.to, notice.urgency, notice.link) == (run.id, ["ops"], "low", f"run:{run.id}")


def test_a_failure_is_reported_with_its_error(lab: Lab) -> None:
    watched(lab, failing)

    woken(lab)

    assert told() == ["greeter failed: Permanent: no such customer"]


def failing(run: AgentRun) -> None:
    raise Permanent("no such customer")


def sleeping(run: AgentRun) -> None:
    run.sleep("1d")


def asking(run: AgentRun) -> None:
    run.ask_approval("Go on?", expires="1h", on_expiry="fail")


def claimed(lab: Lab) -> Run:
    assert lab.claim()
    with connection.cursor() as cursor:
        cursor.execute("RESET application_name")  # a rescuer ends the session of the claim
    return Run.objects.get()


def by_a_cancel_while_it_is_queued(lab: Lab) -> None:
    cancel(Run.objects.get().id, by="ada")


def by_a_cancel_while_it_waits(lab: Lab) -> None:
    lab.claim_and_execute()
    assert Run.objects.get().status == "waiting"
    cancel(Run.objects.get().id, by="ada")


def by_a_cancel_while_it_is_running(lab: Lab) -> None:
    claim = lab.claim()
    cancel(Run.objects.get().id, by="ada")
    assert claim
    execute(claim)


def by_a_rescuer(lab: Lab) -> None:
    assert lost(claimed(lab), "its worker was lost")


def by_the_expiry_of_an_approval(lab: Lab) -> None:
    lab.declare(asking, "greeter")
    lab.claim_and_execute()
    execute_sql("UPDATE runs_wait SET created_at = created_at - interval '2 h', due_at = due_at - interval '2 h'")
    assert waits.end_due(100).runs == 1
    lab.claim_and_execute()


def by_a_person_who_lets_an_uncertain_one_fail(lab: Lab) -> None:
    run = claimed(lab)
    execute_sql("UPDATE runs_run SET status = 'uncertain', status_reason = 'unproved' WHERE id = %s", [run.id])
    make_step(run, "charge", status="started")
    resolve(run.id, outcome="fail", by="ada")


def by_the_next_event_of_its_key(lab: Lab) -> None:
    Trigger.objects.update(overlap="cancel_previous")
    make_event()
    dispatch(Rules())


def by_a_fork(lab: Lab) -> None:
    lab.claim_and_execute()
    fork(Run.objects.get().id, by="ada")


def by_any_statement_of_sql(lab: Lab) -> None:
    execute_sql("UPDATE runs_run SET status = 'cancelled', ready_at = NULL, slot = NULL, finished_at = now()")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (by_a_cancel_while_it_is_queued, "greeter was cancelled: cancelled by ada"),
        (by_a_cancel_while_it_waits, "greeter was cancelled: cancelled by ada"),
        (by_a_cancel_while_it_is_running, "greeter was cancelled: cancelled"),
        (by_a_rescuer, "greeter failed: its worker was lost"),
        (by_the_expiry_of_an_approval, "greeter failed: ApprovalExpired: "),
        (by_a_person_who_lets_an_uncertain_one_fail, "greeter failed: "),
        (by_the_next_event_of_its_key, "greeter was cancelled: cancelled by the next event"),
        (by_a_fork, "greeter was cancelled: "),
        (by_any_statement_of_sql, "greeter was cancelled"),
    ],
)
def test_an_end_by_another_hand_is_reported_in_the_same_commit(
    lab: Lab, ends: Callable[[Lab], None], said: str
) -> None:
    watched(lab, sleeping, key="'one'", overlap="queue")
    make_event()
    lab.look()
    first = Run.objects.get()

    ends(lab)

    first.refresh_from_db()
    assert first.status in ("failed", "cancelled")
    assert OutboxMessage.objects.filter(topic="run.report", key=str(first.id)).count() == 1
    OutboxMessage.objects.update(available_at=Now())
    outbox.deliver_inside(100)
    [text] = Notification.objects.filter(run_id=first.id, to=["ops"]).values_list("text", flat=True)
    assert text.startswith(said)


def test_blocked_runs_of_a_key_are_reported_when_they_are_taken_away(lab: Lab) -> None:
    watched(lab, sleeping, key="'one'", overlap="queue")
    for _ in range(3):
        make_event()
    lab.look()
    key = Run.objects.values_list("key", flat=True)[0] or ""

    assert take_blocked_away(key, reason="cancelled by ada") == 2

    assert OutboxMessage.objects.filter(topic="run.report").count() == 2


def test_an_end_that_is_rolled_back_is_not_reported(lab: Lab) -> None:
    watched(lab, sleeping)
    make_event()
    lab.look()

    with transaction.atomic():
        execute_sql("UPDATE runs_run SET status = 'cancelled', ready_at = NULL, slot = NULL, finished_at = now()")
        transaction.set_rollback(True)

    settle(lab)
    assert told() == []


def test_a_requeued_run_is_reported_at_each_of_its_ends(lab: Lab) -> None:
    watched(lab, failing)
    run = woken(lab)
    requeue(run.id, by="ada")
    lab.declare(lambda run: "done", "greeter")

    settle(lab)

    assert [text.partition(" after ")[0].partition(":")[0] for text in told()] == [
        "greeter failed",
        "greeter succeeded",
    ]


@pytest.mark.parametrize(
    ("body", "reached"), [(failing, ["every", "failures"]), (lambda run: None, ["every", "successes"])]
)
def test_only_the_ends_that_a_report_names_are_reported(
    lab: Lab, body: Callable[[AgentRun], Any], reached: list[str]
) -> None:
    named = {"end": "every", "success": "successes", "failure": "failures"}
    watched(lab, body, *({"on": on, "notify": [name]} for on, name in named.items()))

    woken(lab)

    assert sorted(notice.to[0] for notice in Notification.objects.all()) == reached


def test_a_retry_is_no_end(lab: Lab) -> None:
    def fails(run: AgentRun) -> None:
        raise ValueError("not yet")

    watched(lab, fails, policy={"retries": 1})

    run = woken(lab)
    assert (run.status, told()) == ("queued", [])

    lab.later(run)
    settle(lab)
    assert told() == ["greeter failed after 2 attempts: ValueError: not yet"]


def test_a_run_without_reports_leaves_no_message(lab: Lab) -> None:
    lab.declare(lambda run: None, "greeter")
    make_trigger("greeter")
    make_event()
    lab.look()
    lab.claim_and_execute()

    assert list(OutboxMessage.objects.values_list("topic", flat=True)) == ["run.finished"]
    assert "reports" not in Run.objects.get().policy


def test_a_message_is_handled_once_although_its_handler_dies_in_between(lab: Lab, monkeypatch: Any) -> None:
    watched(lab, lambda run: "done", {"on": "end", "notify": True, "event": True})
    make_event()
    lab.look()
    lab.claim_and_execute()
    OutboxMessage.objects.update(available_at=Now())

    def dies(payloads: Any) -> None:
        deliver_reports(payloads)
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setitem(ports.inside, "run.report", dies)
        outbox.deliver_inside(100, ["run.report"])
    assert (told(), Event.objects.filter(type="run.finished").count()) == ([], 0)

    settle(lab)
    assert len(told()) == Event.objects.filter(type="run.finished").count() == 1


def test_many_ends_at_once_are_one_notification(lab: Lab) -> None:
    watched(lab, lambda run: "done", durable=False)
    for _ in range(5):
        make_event()
    dispatch(Rules())
    while lab.claim_and_execute():
        pass
    OutboxMessage.objects.update(available_at=Now())
    outbox.deliver_inside(100)

    [text] = told()
    assert text.startswith("greeter: 5 runs ended so at once. The last: greeter succeeded")
    assert text.endswith(": done")


def test_a_failure_of_an_urgent_trigger_is_urgent(lab: Lab) -> None:
    watched(lab, failing, policy={"priority": 1})

    woken(lab)

    assert Notification.objects.get(to=["ops"]).urgency == "high"


def test_a_large_result_stays_on_the_page_of_its_run(lab: Lab) -> None:
    watched(lab, lambda run: "x" * 20_000, {"on": "end", "notify": True, "event": True})

    woken(lab)

    assert told()[0].endswith(": its result has 20,002 bytes; its page shows it")
    event = Event.objects.get(type="run.finished")
    assert event.data and event.data["result"] is None


def test_a_subscription_gets_the_end_whatever_types_it_has(lab: Lab) -> None:
    subscribe(slug="crm", types=["invoice.*"])
    watched(lab, lambda run: "done", {"on": "end", "webhooks": ["crm"]})

    run = woken(lab)

    [delivery] = EventDelivery.objects.select_related("event")
    assert (delivery.name, delivery.status, delivery.event.type) == ("crm", "pending", "run.finished")
    assert delivery.event.data and delivery.event.data["run"] == str(run.id)
    assert delivery.event.dispatched_at is not None  # it wakes no agent


def test_a_disabled_subscription_has_a_failed_delivery_and_a_missing_one_is_said(lab: Lab) -> None:
    subscribe(slug="crm")
    Subscription.objects.update(enabled=False)
    watched(lab, lambda run: "done", {"on": "end", "webhooks": ["crm", "gone"]})

    woken(lab)

    assert EventDelivery.objects.values_list("name", "status").get() == ("crm", "failed")
    assert told() == [
        "greeter reports to the subscription 'gone', which does not exist. Create it, or change the reports."
    ]


def test_a_trigger_that_names_the_type_is_woken_by_the_end_and_one_of_all_types_is_not(lab: Lab) -> None:
    watched(lab, lambda run: "done", {"on": "end", "event": True})
    lab.declare(lambda run: run.event.data["status"], "after")
    make_trigger("after", types=["run.finished"], filter="event.data.agent == 'greeter'")
    make_trigger("all", agent="after", types=["*"])
    make_trigger("some", agent="after", types=["run.*"])
    subscribe(slug="everything", types=["*"])
    subscribe(slug="ends", types=["run.finished"])

    make_event()
    settle(lab)

    ends = Run.objects.filter(event_ids__contains=[Event.objects.get(type="run.finished").id])
    assert [run.trigger for run in ends] == ["after"]
    delivered = EventDelivery.objects.filter(event__type="run.finished")
    assert list(delivered.values_list("name", flat=True)) == ["ends"]


def test_a_trigger_that_is_woken_by_its_own_ends_is_stopped_as_a_loop(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_MAX_DEPTH = 2
    watched(lab, lambda run: None, {"on": "end", "event": True}, types=["visitor.*", "run.finished"])

    make_event()
    settle(lab)

    assert Run.objects.count() == 3
    assert list(Trigger.objects.get().decisions.values_list("outcome", flat=True).distinct()) == ["loop"]


def test_a_tainted_run_gives_a_tainted_event_in_its_causal_chain(lab: Lab) -> None:
    watched(lab, lambda run: "done", {"on": "end", "event": True})
    cause = make_event(is_tainted=True)
    settle(lab)

    event = Event.objects.get(type="run.finished")
    assert (event.is_tainted, event.root_id, event.depth, event.chain) == (True, cause.root_id, 1, ["greeter"])
    run = Run.objects.get()
    assert (event.cause_run_id, event.source.slug, event.ce_id) == (run.id, "run", f"{run.id}:finished:{run.epoch}")


def test_a_report_of_a_newer_version_waits_for_it(lab: Lab) -> None:
    watched(lab, lambda run: "done", {"on": "end", "pigeon": True}, OPS)
    make_event()
    lab.look()
    lab.claim_and_execute()
    OutboxMessage.objects.update(available_at=Now())
    outbox.deliver_inside(100)

    waiting = OutboxMessage.objects.get(topic="run.report")
    assert "unknown fields pigeon" in waiting.last_error
    assert told() == []
