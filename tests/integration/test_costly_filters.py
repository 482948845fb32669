"""A real dispatcher, and payloads that its filters would need minutes for."""

import pytest

from runs.models import Run
from tests.support.stack import StackMaker, eventually
from tests.support.triggers import make_event, make_trigger
from triggers.models import Decision, Event

HOURS = "event.data.items.filter(x, x > 0).size() > 3"


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
