"""A report may answer the message that woke the run."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now

from agents import AgentRun, Permanent
from runs.models import Delivery, Notification, OutboxMessage
from tests.support.durable import Lab, lab
from tests.support.replying import slack_message, slack_source
from tests.support.triggers import make_event, make_trigger

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def ended(lab: Lab, body: Callable[[AgentRun], Any], type: str, woken: Callable[[], Any]) -> None:
    lab.declare(body, "greeter")
    make_trigger("greeter", types=[type], policy={"retries": 0, "reports": [{"on": "end", "reply": True}]})
    woken()
    while True:
        OutboxMessage.objects.filter(topic__in=["run.report", "run.finished"]).update(available_at=Now())
        if not (lab.look() or lab.claim_and_execute()):
            return


def failing(run: AgentRun) -> None:
    raise Permanent("password of db-1 refused")


def mention() -> None:
    slack_message(slack_source(1))


def test_a_success_is_answered_with_its_result_in_words(lab: Lab) -> None:
    ended(lab, lambda run: "four orders", "visitor.*", mention)

    assert Notification.objects.get().text.endswith(": four orders")
    assert (Delivery.objects.get().channel, Delivery.objects.get().thread) == (
        "slack-thread",
        "slack:C1:1700000000.000100",
    )


def test_a_failure_is_answered_without_its_error_which_strangers_might_read(lab: Lab) -> None:
    ended(lab, failing, "visitor.*", mention)

    assert Notification.objects.get().text == "greeter failed"


def test_a_report_that_has_no_place_to_answer_is_said_in_a_notification(lab: Lab) -> None:
    ended(lab, lambda run: None, "visitor.*", make_event)

    assert not Delivery.objects.exists()
    assert "greeter reports by a reply, and cannot: source 'cli'" in Notification.objects.get().text


def test_no_report_passes_by_the_person_whom_the_source_wants_to_see_the_answers_to_strangers(lab: Lab) -> None:
    def reading(run: AgentRun) -> str:
        run.taint()
        return "four orders"

    ended(lab, reading, "visitor.*", lambda: slack_message(slack_source(1, reply="ask")))

    assert not Delivery.objects.filter(channel="slack-thread").exists()
    assert "a person has to see its answer first" in Notification.objects.get().text
