"""Approvals are decided by several at once, through their signed link and the API, while workers, the dispatcher and the web process are
killed: one decision counts, all agree on it, and its effect happens once. WAKEFUL_FULL=1 plays more."""

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import Barrier, Event, Thread
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.integration.courier import FINISHED, Courier, eventually
from tests.support.receiver import Receiver, receiving
from tests.support.stack import StackMaker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

RUNS = 100 if os.environ.get("WAKEFUL_FULL") else 12
AT_ONCE = 4  # runs whose approvals are decided at the same time
EACH_KILL = 3  # approvals that are decided before the next kill
PAUSE = 0.3  # seconds between two kills
VICTIMS = ("worker-1", "worker-2", "dispatcher-1", "worker-1", "worker-2", "web-1")
# What each of four who decide at once wants: two by the link, two by the API.
BY_LINK = ({"decision": "approve"}, {"decision": "deny"})
BY_API = ({"decision": "approve"}, {"decision": "edit", "arguments": {"cents": 1}})
AGREED = {"approve": "approved", "deny": "denied", "edit": "edited"}
UNANSWERED = 0  # no answer came


@pytest.fixture
def courier(make_stack: StackMaker) -> Iterator[Courier]:
    with receiving() as receiver:
        yield Courier(make_stack, receiver)


def test_one_decision_counts_and_its_effect_happens_once(courier: Courier) -> None:
    for kind in ("web", "dispatcher", "worker", "worker"):
        courier.start(kind)
    over, kills = Event(), Counter[str]()
    killing = Thread(target=kill_in_turn, args=[courier, over, kills])
    killing.start()
    began = time.monotonic()
    try:
        events = [courier.emit("courier.approve", number=number) for number in range(RUNS)]
        with ThreadPoolExecutor(AT_ONCE) as pool:

            def decide(number: int) -> list[tuple[str, int]]:
                eventually(lambda: kills.total() >= number // EACH_KILL)
                return decided(courier, events[number])

            answers = dict(zip(events, pool.map(decide, range(RUNS)), strict=True))
        runs = {event: ended(courier, event) for event in events}
    finally:
        over.set()
        killing.join()

    for event, run in runs.items():
        assert run["status"] == "succeeded", run["error"]
        assert_one_decision_counts(courier, run, answers[event])
        assert_one_effect(courier.receiver, run)
        assert courier.entries(run) == [run["result"][0]]
    decisions = Counter(run["result"][0] for run in runs.values())
    statuses = Counter(status for each in answers.values() for _, status in each)
    print(
        f"\n{RUNS} approvals in {time.monotonic() - began:.0f} s: {dict(decisions)}, answers {dict(statuses)}, kills {dict(kills)}, "
        f"uncertain {dict(courier.resolved)}"
    )


def kill_in_turn(courier: Courier, over: Event, kills: Counter[str]) -> None:
    for name in cycle(VICTIMS):
        process = courier.processes[name]
        if over.wait(PAUSE):
            break
        process.kill()
        kills[process.kind] += 1
        process.restart(wait=False)
        while not process.is_ready() and not over.wait(0.1):
            pass
    for process in courier.processes.values():
        if process.is_alive():
            process.wait_ready()


def decided(courier: Courier, event: str) -> list[tuple[str, int]]:
    """What each of four wanted, and the status it got. They begin together, once there is something to decide; a request without
    an answer is repeated, as people do."""
    run = courier.waiting(event, key_of(courier, event))
    [approval] = courier.stack.query(
        "SELECT approval.id FROM runs_approval approval JOIN runs_wait wait ON wait.id = wait_id WHERE wait.run_id = %s",
        run["id"],
    )
    link = link_of(courier, approval["id"])
    together = Barrier(len(BY_LINK) + len(BY_API))

    def ask(decide: Any, wish: dict[str, Any]) -> tuple[str, int]:
        together.wait(60)
        while (status := decide(wish)) in (UNANSWERED, 502, 503):
            time.sleep(0.2)
        return wish["decision"], status

    with ThreadPoolExecutor(together.parties) as people:
        asked = [people.submit(ask, lambda wish: by_link(courier, link, wish), wish) for wish in BY_LINK]
        asked += [people.submit(ask, lambda wish: by_api(courier, approval["id"], wish), wish) for wish in BY_API]
        return [one.result() for one in asked]


def key_of(courier: Courier, event: str) -> str:
    """Of the wait for the approval."""
    query = """SELECT wait.key FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
               WHERE wait.kind = 'approval' AND %s::uuid = ANY(run.event_ids)"""
    return str(eventually(lambda: courier.stack.query(query, event))[0]["key"])


def link_of(courier: Courier, approval: Any) -> str:
    from runs.api.approval_links import approval_link
    from runs.models import Approval

    with courier.stack.orm():
        return approval_link(Approval.objects.get(pk=approval))


def by_link(courier: Courier, link: str, wish: dict[str, Any]) -> int:
    """Open the page, and send its form."""
    try:
        page = courier.stack.request("GET", link, timeout=30)
        found = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', page.body)
        if page.status != 200 or not found:
            return 409 if page.status == 200 else page.status  # it is decided: there is no form any more
        form = urlencode({**wish, "csrfmiddlewaretoken": found[1].decode()}).encode()
        cookie = next(value for name, value in page.headers.items() if name.lower() == "set-cookie").split(";")[0]
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
        return courier.stack.request("POST", link, body=form, headers=headers, timeout=30).status
    except OSError:
        return UNANSWERED


def by_api(courier: Courier, approval: Any, wish: dict[str, Any]) -> int:
    try:
        return courier.stack.api("POST", f"/api/v1/approvals/{approval}/decide/", wish).status
    except OSError:
        return UNANSWERED


def ended(courier: Courier, event: str) -> dict[str, Any]:
    run = courier.run(event)

    def look() -> dict[str, Any] | None:
        [now] = courier.stack.query("SELECT * FROM runs_run WHERE id = %s", run["id"])
        if now["status"] == "uncertain":
            try:
                courier.resolve(now)
            except (OSError, AssertionError):
                return None  # the web process is killed, or another answer was first
        return now if now["status"] in FINISHED else None

    return eventually(look, 600) or {}


def assert_one_decision_counts(courier: Courier, run: dict[str, Any], answers: list[tuple[str, int]]) -> None:
    [row] = courier.stack.query(
        "SELECT approval.* FROM runs_approval approval JOIN runs_wait wait ON wait.id = wait_id WHERE wait.run_id = %s",
        run["id"],
    )
    assert run["result"][0] == AGREED[row["decision"]]
    accepted = [wish for wish, status in answers if status in (200, 302)]
    assert len(accepted) <= 1  # none, where the one whose decision counts was not answered
    assert all(wish == row["decision"] for wish in accepted)
    assert {status for _, status in answers} <= {200, 302, 409}
    entries = courier.stack.query(
        "SELECT action FROM runs_auditentry WHERE object_id = %s AND action IN ('approve', 'edit', 'deny')",
        str(row["id"]),
    )
    assert len(entries) == 1


def assert_one_effect(receiver: Receiver, run: dict[str, Any]) -> None:
    decision, arguments = run["result"]
    is_paid = decision != "denied"
    assert len(receiver.keys("/ring", run["id"])) == is_paid
    paid = {key: receiver.bodies("/pay", key) for key in receiver.keys("/pay", run["id"])}
    assert len(paid) == is_paid  # one key: what came again under it was done once
    assert all(body == {"cents": arguments["cents"]} for bodies in paid.values() for body in bodies)
