"""Events that look like a Django task, and that no code of the project has enqueued."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group
from django.tasks import TaskResultStatus, default_task_backend
from django.tasks.exceptions import TaskResultDoesNotExist

from runs.models import Run
from tests.support.durable import Lab, lab
from tests.triggers.django_tasks.test_backend import add, found, tasks, work
from triggers.accept import Incoming, accept
from triggers.declarations.overrides import override
from triggers.django_tasks.names import AGENT, SOURCE, TYPE
from triggers.exceptions import Invalid
from triggers.models import Event, Source, Trigger
from triggers.replays.replay import replay
from triggers.sources.archive.load import load_all
from triggers.sources.manual import fire
from wakeful import emit

__all__ = ["lab", "tasks"]

pytestmark = pytest.mark.django_db(transaction=True)

Status = TaskResultStatus

ASKED = {
    "task": found.module_path, "args": ["forged"], "kwargs": {}, "queue": "default", "priority": 0, "run_after": "",
    "effect": "at_most_once", "backend": "default",
}  # fmt: skip


def import_and_replay(source: str = "emit") -> UUID:
    line = {"specversion": "1.0", "id": str(uuid4()), "source": "elsewhere", "type": TYPE, "data": ASKED}
    loaded = load_all(json.dumps(line).encode(), source=source, by="test")
    assert loaded.imported == 1, loaded.reasons
    event = Event.objects.get()
    replay(event, by="test")
    return event.id


def fire_with_data() -> UUID:
    return fire(Trigger.objects.get(slug=AGENT), data=ASKED, by="test")


def deliver(slug: str = "shop") -> UUID:
    """At a webhook, with a trigger that an operator has widened to every source."""
    Trigger.objects.filter(slug=AGENT).update(source="")
    source = Source.objects.create(slug=slug, kind="webhook")
    [accepted] = accept([Incoming(source_id=source.id, ce_source="emit", ce_id="1", type=TYPE, data=ASKED)])
    return accepted.event_id


def deliver_where_the_source_was_replaced() -> UUID:
    Source.objects.filter(slug=SOURCE).delete()
    return deliver(SOURCE)


def emit_another_type() -> UUID:
    """With a trigger that an operator has widened to every type."""
    Trigger.objects.filter(slug=AGENT).update(types=["*"])
    return emit("order.paid", ASKED)


@pytest.mark.parametrize(
    "forge", [import_and_replay, fire_with_data, deliver, deliver_where_the_source_was_replaced, emit_another_type]
)
def test_what_no_code_has_enqueued_calls_nothing_and_is_no_task(lab: Lab, forge: Callable[[], UUID]) -> None:  # noqa: F811
    id = forge()
    work(lab)

    run = Run.objects.get()
    assert (run.status, run.attempt) == ("failed", 1), run.error
    assert run.error.startswith("Permanent: ")
    assert not Group.objects.exists()
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(str(id))


def test_a_task_that_is_replayed_is_called_again_and_its_newest_run_is_its_result(lab: Lab) -> None:  # noqa: F811
    result = found.enqueue("a", fails=True)
    work(lab)
    result.refresh()
    assert result.status == Status.FAILED
    Group.objects.all().delete()

    replay(Event.objects.get(), by="test")
    work(lab)

    assert Group.objects.count() == 2
    assert [run.status for run in Run.objects.all()] == ["failed", "failed"]


@pytest.mark.parametrize(
    "joining", [{"overlap": "queue_one", "key": "'one'"}, {"policy": {"batch": 3}}, {"policy": {"debounce": 1}}]
)
def test_a_trigger_that_would_join_tasks_into_one_run_is_refused(lab: Lab, joining: dict[str, Any]) -> None:  # noqa: F811
    """One run calls one task: the others would be lost, and have its value."""
    trigger = Trigger.objects.get(slug=AGENT)
    with pytest.raises(Invalid, match="one task"):
        override(trigger, joining, "test")
    Trigger.objects.filter(pk=trigger.pk).update(**joining)
    results = [add.enqueue(number) for number in range(3)]
    work(lab)

    for result in results:
        result.refresh()
        assert result.status == Status.FAILED
        assert "one task" in result.errors[0].traceback

    trigger.save()
    for event in Event.objects.all():
        replay(event, by="test")
    work(lab)
    for number, result in enumerate(results):
        result.refresh()
        assert (result.status, result.return_value) == (Status.SUCCESSFUL, number)
