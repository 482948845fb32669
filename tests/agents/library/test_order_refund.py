from typing import Any

import pytest

from agents import Answer, StepFailed
from agents.library.models import Order
from agents.library.order_refund import order_refund
from agents.testing import AgentResult, Crashed, Journal, run_agent

pytestmark = pytest.mark.django_db

ORDER = {"order": "A-1"}
APPROVAL, PARCEL = "approval#1", "event parcel.returned#1"


def an_order() -> Order:
    return Order.objects.create(number="A-1", total="42.50", placed_at="2026-11-20T00:00Z")


def refund_order(answer: str | Answer, parcel: Any = ORDER, **given: Any) -> AgentResult:
    return run_agent(order_refund, data=ORDER, waits={APPROVAL: answer, PARCEL: parcel}, **given)


def refunded() -> str:
    return str(Order.objects.get().refunded)


def test_money_is_given_back_once_a_person_has_approved_and_the_goods_are_here() -> None:
    an_order()

    done = refund_order(Answer(decision="approved", arguments={"amount": "42.50"}, by="admin:ada"))

    assert done.result == {"order": "A-1", "refunded": "42.50", "new": True}
    assert refunded() == "42.50"
    assert [notice.text for notice in done.notifications] == ["Refunded 42.50 of order A-1, approved by admin:ada"]


def test_a_refund_gets_approval_then_waits_for_the_parcel_then_pays() -> None:
    an_order()

    done = refund_order("approved")

    assert done.journal.keys == ["find the order", APPROVAL, PARCEL, "refund", "notify#1"]


def test_a_crash_after_the_refund_does_not_refund_twice() -> None:
    an_order()
    journal = Journal()

    with pytest.raises(Crashed):
        refund_order("approved", journal=journal, crash_after="refund")
    done = refund_order("approved", journal=journal)

    assert (done.steps, done.result["refunded"]) == (["notify#1"], "42.50")


def test_a_person_may_give_back_less() -> None:
    an_order()

    refund_order(Answer(decision="edited", arguments={"amount": 40}))

    assert refunded() == "40.00"


@pytest.mark.parametrize("edited", [{"amount": "50"}, {"amount": 0}, {"amount": "much"}, {}, [], "40"])
def test_an_impossible_refund_fails_with_the_fix(edited: Any) -> None:
    an_order()

    with pytest.raises(StepFailed, match="fork the run from its approval") as raised:
        refund_order(Answer(decision="edited", arguments=edited))

    assert raised.value.permanent
    assert refunded() == "None"


@pytest.mark.parametrize("answer", ["denied", "expired"])
def test_a_denied_or_expired_refund_is_not_paid(answer: str) -> None:
    an_order()

    assert refund_order(answer).result == {"order": "A-1", "refunded": None, "because": answer}
    assert refunded() == "None"


def test_goods_that_do_not_return_are_reported() -> None:
    an_order()

    done = refund_order("approved", parcel=None)

    assert (done.result["because"], refunded()) == ("not returned", "None")
    assert "have not returned within 14 days" in done.notifications[0].text


def test_a_refund_that_was_given_is_not_requested_again() -> None:
    Order.objects.filter(pk=an_order().pk).update(refunded="42.50")

    assert run_agent(order_refund, data=ORDER).result == {"order": "A-1", "refunded": "42.50", "new": False}


def test_an_unknown_order_fails_until_it_is_there_and_the_run_is_requeued() -> None:
    journal = Journal()
    with pytest.raises(StepFailed, match="'A-1' is not known.*requeue"):
        refund_order("approved", journal=journal)

    an_order()

    assert refund_order("approved", journal=journal).result["refunded"] == "42.50"
