"""A message of a task that no worker here knows is kept, put back as it came, and never discarded by itself."""

from typing import Any

import pytest
from celery import current_app
from kombu import Message

from runs.models import OutboxMessage
from runs.network import broker
from runs.ports import UNKNOWN_TASK
from runs.queues import unknown_tasks
from runs.queues.signs.unknown_tasks import UNKNOWN_TASKS, UnknownTask

pytestmark = pytest.mark.django_db


def message(id: str = "one", body: Any = b'[["1"], {}, {}]', **headers: Any) -> Message:
    return Message(
        body=body,
        content_type="application/json",
        content_encoding="utf-8",
        headers={"id": id, "task": "billing.tasks.charge", "lang": "py", **headers},
        delivery_info={"exchange": "", "routing_key": "a-queue-of-theirs"},
        properties={"correlation_id": id, "priority": 3},
    )


def test_a_message_is_kept_once_and_is_a_problem_until_it_is_discarded() -> None:
    unknown_tasks.keep(message())
    unknown_tasks.keep(message())  # delivered again after a kill
    unknown_tasks.keep(message("two", headers_of_theirs=b"no JSON"))

    first, second = unknown_tasks.kept()
    assert (first.task, first.queue) == ("billing.tasks.charge", "a-queue-of-theirs")
    [problem] = UNKNOWN_TASKS.problems_of([UnknownTask(task=first.task, queue=first.queue, count=2, age=1.0)])
    assert "2 messages are kept of Celery tasks" in problem.text
    unknown_tasks.discard(first)
    unknown_tasks.discard(second)
    assert unknown_tasks.kept() == []


def test_no_more_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_tasks, "MOST", 2)
    for id in ("one", "two"):
        unknown_tasks.keep(message(id))
    with pytest.raises(unknown_tasks.Full):
        unknown_tasks.keep(message("three"))
    assert OutboxMessage.objects.filter(topic=UNKNOWN_TASK).count() == 2


def test_a_message_is_put_back_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "breaker", broker.closed_breaker())
    unknown_tasks.keep(message(body=b"\x80\x02not text"))
    [kept] = unknown_tasks.kept()

    unknown_tasks.put_back(kept)

    assert unknown_tasks.kept() == []
    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        found = channel.basic_get("a-queue-of-theirs", no_ack=True)
    assert found is not None
    assert found.headers == message().headers
    assert found.body == b"\x80\x02not text"
    assert found.properties["correlation_id"] == "one"
