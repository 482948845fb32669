"""What the ends of runs mean for their triggers."""

from typing import Any
from uuid import uuid4

import pytest

from runs.models import Notification
from tests.support.triggers import make_trigger
from triggers.dispatch.run_failures import count_failures
from triggers.models import Trigger

pytestmark = pytest.mark.django_db


def ended(trigger: Trigger, *statuses: str) -> list[dict[str, Any]]:
    return [
        {"run": str(uuid4()), "agent": trigger.agent, "trigger": str(trigger.id), "status": status, "error": "boom"}
        for status in statuses
    ]


def test_failures_in_a_row_are_counted_and_a_success_ends_them() -> None:
    trigger = make_trigger()

    count_failures(ended(trigger, "failed", "failed"))
    trigger.refresh_from_db()
    assert trigger.failures_in_a_row == 2

    count_failures(ended(trigger, "succeeded", "failed"))
    trigger.refresh_from_db()
    assert (trigger.failures_in_a_row, trigger.is_paused) == (1, False)


def test_a_cancelled_run_is_neither_success_nor_failure() -> None:
    trigger = make_trigger(failures_in_a_row=2)

    count_failures(ended(trigger, "cancelled"))

    trigger.refresh_from_db()
    assert trigger.failures_in_a_row == 2


def test_the_trigger_that_reaches_its_limit_pauses_loudly() -> None:
    trigger = make_trigger(policy={"pause_after": 3}, failures_in_a_row=2)

    count_failures(ended(trigger, "failed", "failed"))

    trigger.refresh_from_db()
    assert trigger.is_paused
    assert trigger.paused_reason == "3 failed runs in a row"
    notification = Notification.objects.get(topic__startswith="alarm:")
    assert (notification.urgency, notification.sender) == ("high", trigger.slug)
    assert "boom" in notification.text


def test_failures_of_a_trigger_whose_policy_cannot_be_read_are_counted() -> None:
    trigger = make_trigger(policy={"retries": "many"}, failures_in_a_row=9)

    count_failures(ended(trigger, "failed"))

    trigger.refresh_from_db()
    assert (trigger.failures_in_a_row, trigger.is_paused) == (10, True)


def test_pause_after_zero_never_pauses_a_trigger() -> None:
    trigger = make_trigger(policy={"pause_after": 0}, failures_in_a_row=99)

    count_failures(ended(trigger, "failed"))

    trigger.refresh_from_db()
    assert not trigger.is_paused
