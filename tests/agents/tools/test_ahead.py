"""What a model sets ahead for its own agent, on real rows: once, and with no more than its trigger allows."""

from typing import Any

import pytest
from django.db.models.functions import Now
from pydantic_ai import Agent as LlmAgent

from agents.run import AgentRun
from agents.tools import toolbox
from runs.models import Notification, OutboxMessage, Run
from tests.support.durable import Lab, lab
from tests.support.llm import Turns
from tests.support.triggers import make_trigger
from triggers.models import Event, Schedule

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)

CAP = ["notify", "schedule", "wake_me"]
FIRST = [
    ("schedule", {"name": "look", "cron": "0 9 * * *"}),
    ("wake_me", {"minutes": 10, "reason": "is it done?"}),
    ("notify", {"text": "I look again."}),
]


def test_the_runs_that_it_sets_ahead_have_no_more_tools_than_itself(lab: Lab) -> None:
    trigger = make_trigger("asker", agent="durable", types=[], tools=CAP, policy={"retries": 0})
    seen: list[str] = []

    def body(run: AgentRun) -> Any:
        is_woken = run.event.type == "run.wakeup"
        turns = Turns([("emit", {"type": "refund.requested"})], "done") if is_woken else Turns(FIRST, "done")
        llm = LlmAgent(turns.model, name="asker", tools=toolbox.named([*CAP, "emit"]))
        seen.extend(str(message) for message in run.llm(llm, "Go.", deps=run).all_messages())
        run.step("after", lambda: None)

    run = lab.run(body, trigger_id=trigger.pk, policy={"tools": CAP})

    assert run.status == "succeeded", run.error
    [schedule] = Schedule.objects.filter(trigger=trigger)
    assert str(schedule) == "asker/look"
    assert Notification.objects.filter(text="I look again.").count() == 1
    wakes = OutboxMessage.objects.filter(topic="wakeup")
    assert wakes.count() == 1

    wakes.update(available_at=Now())
    lab.go_on(run)

    woken = Run.objects.get(trigger="asker")
    assert (woken.status, woken.policy["tools"]) == ("succeeded", CAP)
    assert "Unknown tool name: 'emit'" in seen[-2]
    assert not Event.objects.filter(type="refund.requested").exists()


def test_more_than_the_trigger_may_have_ahead_is_not_set(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_MAX_WAKES = 1
    trigger = make_trigger("asker", agent="durable", types=[], policy={"retries": 0})

    def body(run: AgentRun) -> Any:
        again = ("wake_me", {"minutes": 20, "reason": "still?"})
        llm = LlmAgent(Turns([FIRST[1], again], "done").model, name="asker", tools=toolbox.named(CAP))
        return run.llm(llm, "Go.", deps=run).output

    run = lab.run(body, trigger_id=trigger.pk)

    assert run.status == "failed"
    assert "WAKEFUL_MAX_WAKES is 1" in run.error
    assert OutboxMessage.objects.filter(topic="wakeup").count() == 1
