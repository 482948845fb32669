from typing import Any

import pytest

from agents.library.models import Order
from agents.library.order_refund import order_refund
from runs.approvals import decide
from runs.models import Approval, Notification, Run, Step
from runs.requeue import requeue
from tests.runs.durable import Lab, lab
from tests.triggers.factories import make_event

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def an_order() -> Order:
    return Order.objects.create(number="A-1", total="42.50", placed_at="2026-11-20T00:00Z")


def wish(lab: Lab, number: Any = "A-1") -> Run:
    return lab.run(order_refund.body, data={"order": number}, declared={"retries": 0})


def answer(lab: Lab, run: Run, decision: Any, **given: Any) -> Run:
    decide(Approval.objects.get(wait__run=run).pk, decision=decision, by="admin:ada", **given)
    return lab.go_on(run)


def refunded() -> str:
    return str(Order.objects.get().refunded)


def test_money_is_given_back_once_a_person_has_said_so_and_the_goods_are_here(lab: Lab) -> None:
    an_order()

    run = wish(lab)
    assert (run.status, refunded()) == ("waiting", "None")
    assert Approval.objects.get().arguments == {"amount": "42.50"}
    run = answer(lab, run, "approve")
    assert (run.status, refunded()) == ("waiting", "None")
    make_event(type="parcel.returned", data={"order": "A-1"})
    run = lab.go_on(run)

    assert (run.status, run.result) == ("succeeded", {"order": "A-1", "refunded": "42.50", "new": True})
    assert refunded() == "42.50"
    assert "Refunded 42.50 of order A-1, granted by admin:ada" in Notification.objects.values_list("text", flat=True)
    assert [step.effect for step in Step.objects.order_by("position")] == ["read", "transactional", "transactional"]


def test_goods_that_are_back_before_anybody_has_decided_are_not_waited_for_again(lab: Lab) -> None:
    an_order()
    run = wish(lab)
    make_event(type="parcel.returned", data={"order": "A-1"})

    assert answer(lab, run, "approve").status == "succeeded"
    assert refunded() == "42.50"


def test_a_person_may_give_back_less_but_not_more(lab: Lab) -> None:
    an_order()

    for amount, status in [("50", "failed"), ("0", "failed"), ("much", "failed"), ("40", "succeeded")]:
        run = wish(lab)
        make_event(type="parcel.returned", data={"order": "A-1"})
        assert answer(lab, run, "edit", arguments={"amount": amount}).status == status

    assert refunded() == "40.00"


def test_what_is_denied_is_not_given_back(lab: Lab) -> None:
    an_order()

    run = answer(lab, wish(lab), "deny")

    assert run.result == {"order": "A-1", "refunded": None, "because": "denied"}
    assert refunded() == "None"


def test_goods_that_do_not_return_are_told_of(lab: Lab) -> None:
    an_order()

    run = lab.later(answer(lab, wish(lab), "approve"))

    assert run.result == {"order": "A-1", "refunded": None, "because": "not returned"}
    assert Notification.objects.filter(text__contains="have not returned within 14 days").exists()


def test_a_refund_that_was_given_is_not_asked_for_again(lab: Lab) -> None:
    Order.objects.filter(pk=an_order().pk).update(refunded="42.50")

    run = wish(lab)

    assert run.result == {"order": "A-1", "refunded": "42.50", "new": False}
    assert not Approval.objects.exists()


def test_an_unknown_order_fails_until_it_is_there_and_the_run_is_requeued(lab: Lab) -> None:
    run = wish(lab)
    assert run.status == "failed"
    assert "send it as order.placed, then requeue" in run.error

    an_order()
    requeue(run.id, by="test")

    assert lab.go_on(run).status == "waiting"
