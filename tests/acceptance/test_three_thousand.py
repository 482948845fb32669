"""Signed deliveries, a third of them duplicates, over three triggers, while workers are killed and Redis forgets.

WAKEFUL_FULL=1 makes 3,000 of them: `WAKEFUL_FULL=1 pytest -s tests/acceptance/test_three_thousand.py`.
"""

import hmac
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from tests.support.stack import SHOP, Process, Stack, StackMaker, eventually
from triggers.models import Source, Trigger
from triggers.sources.secrets import rotate

pytestmark = pytest.mark.chaos

DELIVERIES = 3000 if os.environ.get("WAKEFUL_FULL") else 600
DUPLICATES = DELIVERIES // 3
TRIGGERS = {"first": "effect", "second": "effect-b", "third": "effect-b"}
SENDERS = 8
SIGNED = {"header": "X-Signature", "template": "{body}", "id_path": "id", "type_path": "type"}

BACKLOG = """
SELECT (SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL) AS undispatched,
       (SELECT count(*) FROM runs_run WHERE status IN ('queued', 'running')) AS unfinished,
       (SELECT count(*) FROM runs_outboxmessage) AS outbox
"""
BUSY = """
SELECT 1 FROM runs_run run JOIN runs_worker worker ON worker.id = run.worker_id
WHERE run.status = 'running' AND worker.pid = %s AND worker.stopped_at IS NULL
"""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Whoever knows the source's secret."""

    stack: Stack
    secret: bytes

    def deliver(self, number: int) -> tuple[int, str]:
        """The answer's status and the event's id."""
        body = json.dumps({"id": f"delivery-{number}", "type": "effect.wanted", "number": number}).encode()
        signature = hmac.digest(self.secret, body, "sha256").hex()
        headers = {"Content-Type": "application/json", "X-Signature": signature}
        answer = self.stack.request("POST", "/hooks/flood/", body=body, headers=headers)
        return answer.status, answer.json()["event"]


@pytest.mark.timeout(600)
def test_every_trigger_has_one_effect_per_event_whatever_is_killed_or_forgotten(make_stack: StackMaker) -> None:
    stack = make_stack(env=SHOP)
    sender = a_flood_with_three_triggers(stack)
    stack.up(workers=3, beat=False)
    began = time.monotonic()

    answers, max_backlog = deliver_amid_trouble(
        sender, [process for process in stack.processes if process.kind == "worker"]
    )
    sent = time.monotonic()
    eventually(lambda: not any(backlog(stack).values()), timeout=240, every=0.25)

    counts = counted(stack, answers)
    report(
        counts,
        seconds_of_sending=round(sent - began, 1),
        seconds_until_drained=round(time.monotonic() - began, 1),
        most_seen_waiting=max_backlog,
        left_over=backlog(stack),
    )
    events = DELIVERIES - DUPLICATES
    assert counts["answers"] == {202: events, 200: DUPLICATES}
    assert counts["events"] == counts["emitted events"] == events
    assert counts["effects"] == dict.fromkeys(TRIGGERS, events)
    assert counts["effects done twice"] == counts["effects of no delivery"] == 0
    assert counts["runs"] == {"succeeded": events * len(TRIGGERS)}
    assert counts["processed events"] == events * len(TRIGGERS)


def a_flood_with_three_triggers(stack: Stack) -> Sender:
    with stack.orm():
        source = Source.objects.create(slug="flood", kind="hmac", settings=SIGNED)
        for slug, agent in TRIGGERS.items():
            Trigger.objects.create(slug=slug, agent=agent, source="flood", types=["effect.*"])
        return Sender(stack=stack, secret=rotate(source, by="test").encode())


def deliver_amid_trouble(sender: Sender, workers: Sequence[Process]) -> tuple[list[tuple[int, str]], int]:
    """Send everything in a random order; what was answered, and the most unfinished runs that were seen."""
    numbers = list(range(DELIVERIES - DUPLICATES))
    numbers += random.sample(numbers, DUPLICATES)
    random.shuffle(numbers)
    troubles: dict[int, Callable[[], object]] = {
        DELIVERIES // 4: lambda: kill_while_busy(workers[0]),
        DELIVERIES // 2: lambda: forget(sender.stack),
        DELIVERIES * 3 // 4: lambda: kill_while_busy(workers[1]),
        # One of the killed comes back; the other's share is left to the rest.
        DELIVERIES * 7 // 8: workers[0].restart,
    }
    answers, most = [], 0
    with ThreadPoolExecutor(SENDERS) as senders:
        for done in as_completed([senders.submit(sender.deliver, number) for number in numbers]):
            answers.append(done.result())
            if trouble := troubles.get(len(answers)):
                trouble()
                most = max(most, backlog(sender.stack)["unfinished"])
    return answers, most


def kill_while_busy(worker: Process) -> None:
    eventually(lambda: worker.stack.query(BUSY, worker.pid), every=0)
    worker.kill()


def forget(stack: Stack) -> None:
    with redis.Redis.from_url(stack.redis_url) as client:
        client.flushdb()


def backlog(stack: Stack) -> dict[str, Any]:
    return stack.query(BACKLOG)[0]


def counted(stack: Stack, answers: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """What came of it, from the database alone."""

    def by_name(sql: str) -> dict[str, int]:
        return {row["name"]: row["count"] for row in stack.query(sql)}

    def number(sql: str, *parameters: Any) -> Any:
        return stack.query(sql, *parameters)[0]["count"]

    accepted = list({event for _, event in answers})
    return {
        "answers": dict(Counter(status for status, _ in answers)),
        "events": number("SELECT count(*) FROM triggers_event WHERE type = 'effect.wanted'"),
        "emitted events": number("SELECT count(*) FROM triggers_event WHERE type = 'effected'"),
        "effects": by_name("SELECT trigger AS name, count(*) FROM shop_effect GROUP BY trigger"),
        "effects done twice": number(
            "SELECT count(*) FROM (SELECT 1 FROM shop_effect GROUP BY trigger, event HAVING count(*) > 1) twice"
        ),
        "effects of no delivery": number("SELECT count(*) FROM shop_effect WHERE event <> ALL(%s::uuid[])", accepted),
        "runs": by_name("SELECT status AS name, count(*) FROM runs_run GROUP BY status"),
        "attempts": by_name("SELECT outcome AS name, count(*) FROM runs_attempt GROUP BY outcome"),
        "processed events": number("SELECT count(*) FROM runs_processedevent"),
        "workers that came and went": number("SELECT count(*) FROM runs_worker WHERE kind = 'worker'"),
    }


def report(counts: dict[str, Any], **more: Any) -> None:
    print()
    for name, count in {"deliveries": DELIVERIES, **counts, **more}.items():
        print(f"  {name.replace('_', ' '):28} {count}")
