"""A real dispatcher, and payloads that its filters would need minutes for."""

import time
from collections.abc import Callable

import pytest

from runs.db.nudge import nudge_dispatcher
from runs.models import Run
from tests.support.outbound import subscribe, subscribe_unchecked
from tests.support.stack import LENIENCE, StackMaker, eventually
from tests.support.triggers import make_event, make_trigger
from triggers.models import Decision, Event, EventDelivery

pytestmark = pytest.mark.long

HOURS = "event.data.items.filter(x, x > 0).size() > 3"
ORDERS, EVERY = 100, 0.05
DELAYS = """
SELECT extract(epoch FROM dispatched_at - received_at)::float8 AS seconds FROM triggers_event WHERE id = ANY(%s::uuid[])
"""


@pytest.mark.chaos
@pytest.mark.timeout(180)
def test_payloads_that_take_hours_to_filter_hold_up_no_other_event_and_kill_no_dispatcher(
    make_stack: StackMaker,
) -> None:
    stack = make_stack(env={"WAKEFUL_MATCH_TIME": "250ms"})
    with stack.orm():
        make_trigger("slow", types=["cart.*"], filter=HOURS)
        make_trigger("deep", types=["cart.*"], filter="event.data.items.map(x, event.data.items.map(y, x)).size() > 0")
        make_trigger("plain", types=["*"])
        poison = [make_event(type="cart.updated", data={"items": [1] * 100_000}) for _ in range(10)]
        dispatcher = stack.start("dispatcher")
        dispatcher.wait_ready()
        unrelated = make_event(type="order.placed")

        eventually(lambda: Run.objects.filter(event_ids__contains=[unrelated.pk]).exists())
        eventually(lambda: not Event.objects.filter(dispatched_at=None).exists())

        assert Run.objects.filter(trigger="plain").count() == len(poison) + 1
        decided = Decision.objects.filter(outcome="error").values_list("trigger__slug", flat=True)
        assert sorted(decided) == ["deep"] * len(poison) + ["slow"] * len(poison)
        assert dispatcher.is_alive()


def hostile_subscription() -> list[Event]:
    subscribe_unchecked(slug="hostile", types=["cart.*"], filter=HOURS)
    return [make_event(type="cart.updated", data={"items": [1] * 20_000}) for _ in range(8)]


def hostile_payload() -> list[Event]:
    for number in range(20):
        make_trigger(f"t{number}", types=["cart.*"], filter=f'event.data.customer == "c{number}"')
    subscribe(slug="other", types=["cart.*"], filter='event.data.customer == "c7"')
    payload = {"customer": "c7", "items": ["item " * 4] * 500_000}  # 11 MB as JSON
    return [make_event(type="cart.updated", data=payload) for _ in range(2)]


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("make_hostile", [hostile_subscription, hostile_payload])
def test_a_hostile_subscription_and_a_hostile_payload_delay_other_events_by_less_than_100_ms(
    make_stack: StackMaker, make_hostile: Callable[[], list[Event]]
) -> None:
    stack = make_stack(env={"WAKEFUL_MAX_MATCH": "25000000"})
    with stack.orm():
        make_trigger("plain", types=["order.*"])
        hostile = [event.pk for event in make_hostile()]
        Event.objects.update(dispatched_at="2026-01-01T00:00:00Z")
        stack.start("dispatcher").wait_ready()

        def delays() -> list[float]:
            orders = []
            for _ in range(ORDERS):
                orders.append(make_event(type="order.placed").pk)
                time.sleep(EVERY)
            eventually(lambda: not Event.objects.filter(pk__in=orders, dispatched_at=None).exists())
            return sorted(row["seconds"] for row in stack.query(DELAYS, orders))

        delays()  # the first events of a dispatcher wait for its rules
        alone = delays()
        Event.objects.filter(pk__in=hostile).update(dispatched_at=None)
        nudge_dispatcher()
        beside = delays()

        print(
            f"{make_hostile.__name__}: alone median {alone[50] * 1000:.0f}, longest {alone[-1] * 1000:.0f} ms; "
            f"beside: median {beside[50] * 1000:.0f}, longest {beside[-1] * 1000:.0f} ms"
        )
        eventually(lambda: not Event.objects.filter(dispatched_at=None).exists())
        assert beside[-1] < alone[-1] + 0.1 * LENIENCE
        # A filter that took too long, and an event that is too large to be sent.
        wanted = "error" if make_hostile is hostile_subscription else "failed"
        statuses = EventDelivery.objects.filter(event_id__in=hostile).values_list("status", flat=True)
        eventually(lambda: list(statuses.all()) == [wanted] * len(hostile))
