"""People whom runs ask: they decide approvals, some of them twice at once, and say of uncertain runs what the receiver
knows."""

import threading
import time
from contextlib import suppress
from random import Random
from typing import Any

import psycopg

from tests.chaos.lab import Lab
from tests.chaos.load import UNHEARD, Senders
from tests.chaos.needs import ask, request, resolution

PENDING = """
SELECT approval.id, approval.arguments, approval.digest FROM runs_approval approval JOIN runs_wait wait ON wait.id = wait_id
WHERE wait.status = 'open' AND decision = '' ORDER BY approval.id
"""
LOOKS = 12


def decide(lab: Lab, senders: Senders, random: Random) -> None:
    """Begin to decide open approvals; one in five is left to expire."""
    thread = threading.Thread(target=_decide, args=(lab, senders, random), daemon=True)
    senders.threads.append(thread)
    thread.start()


def _decide(lab: Lab, senders: Senders, random: Random) -> None:
    left: set[Any] = set()
    for _ in range(LOOKS):
        time.sleep(random.uniform(0.2, 0.6))
        with suppress(psycopg.Error, *UNHEARD):
            for approval in lab.stack.query(PENDING):
                if approval["id"] in left or random.random() < 0.2:
                    left.add(approval["id"])
                    continue
                _decide_one(lab, senders, approval, random)


def _decide_one(lab: Lab, senders: Senders, approval: dict[str, Any], random: Random) -> None:
    """By one person, or by two who do not know of each other."""
    choices: list[dict[str, Any]] = [
        {"decision": "approve", "digest": approval["digest"]},
        {"decision": "edit", "arguments": {"cents": approval["arguments"]["cents"] - 1}},
        {"decision": "deny"},
    ]
    path = f"/api/v1/approvals/{approval['id']}/decide/"
    people = [ask(lab, senders, path, choice) for choice in random.sample(choices, random.choice([1, 1, 2]))]
    for person in people:
        person.join()


def settle(lab: Lab, senders: Senders, timeout: float) -> bool:
    """Wait until nothing is left to do, and say of whatever run is uncertain what really happened. Nobody is frozen any
    more: who might still make a call has made it."""

    def look() -> bool:
        uncertain = lab.uncertain()
        for run in uncertain:
            if run["key"] is None:
                senders.failures.append(f"the journal of run {run['id']} does not fit its agent")
            resolution_body = resolution(lab, run) if run["key"] else {"outcome": "fail"}
            with suppress(*UNHEARD):
                request(lab, senders, f"/api/v1/runs/{run['id']}/resolve/", resolution_body)
        return not uncertain and lab.left() == 0

    return bool(lab.wait_until(look, timeout))
