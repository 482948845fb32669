from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from agents import Permanent
from agents.library.models import Order
from agents.library.order_intake import order_intake
from agents.library.order_shipment import order_shipment
from agents.testing import run_agent

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("total", "booked"), [("42.50", "42.50"), (42.5, "42.50"), (7, "7.00"), (0, "0.00"), ("1E+3", "1000.00")]
)
def test_an_order_is_booked_and_passed_on(total: Any, booked: str) -> None:
    done = run_agent(order_intake, data={"order": "A-1", "total": total})

    assert done.result == {"order": "A-1", "total": booked, "new": True}
    assert [(event.type, event.subject) for event in done.emitted] == [("order.received", "A-1")]
    assert Order.objects.get().total == Decimal(booked)


def test_an_order_announced_again_is_neither_booked_nor_passed_on_again() -> None:
    run_agent(order_intake, data={"order": "A-1", "total": "42.50"})

    again = run_agent(order_intake, data={"order": "A-1", "total": "42.50"})

    assert (again.result["new"], again.emitted) == (False, [])
    assert Order.objects.count() == 1


NO_ORDERS: list[Any] = [None, "A-1", [], {}, {"order": "A-1"}]
NO_TOTALS: list[Any] = [None, "much", "NaN", "Infinity", -1, "-0.01", 10**10, True, []]


@pytest.mark.parametrize("data", [*NO_ORDERS, *({"order": "A-1", "total": total} for total in NO_TOTALS)], ids=repr)
def test_an_invalid_order_fails_permanently(data: Any) -> None:
    with pytest.raises(Permanent, match="not an order"):
        run_agent(order_intake, data=data)
    assert not Order.objects.exists()


def test_a_shipment_waits_for_its_order_among_the_failed_runs_and_succeeds_once_it_is_there() -> None:
    shipment = {"order": "A-1"}
    with pytest.raises(Permanent, match="'A-1' is not known.*requeue"):
        run_agent(order_shipment, data=shipment)

    run_agent(order_intake, data={"order": "A-1", "total": 1})

    assert run_agent(order_shipment, data=shipment).result["order"] == "A-1"


def test_the_first_announcement_of_a_shipment_counts() -> None:
    run_agent(order_intake, data={"order": "A-1", "total": 1})
    first = datetime(2026, 11, 20, tzinfo=UTC)

    run_agent(order_shipment, data={"order": "A-1"}, time=first)
    run_agent(order_shipment, data={"order": "A-1"}, time=first + timedelta(days=1))

    assert Order.objects.get().shipped_at == first
