"""What has to happen for a process to come to a point that the load alone does not lead to."""

import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.chaos.lab import Lab
from tests.chaos.load import UNHEARD, Senders
from tests.chaos.scenarios import Need


class NothingRan(Exception):
    pass


def nothing(lab: Lab, senders: Senders) -> None:
    pass


def lost_child(lab: Lab, senders: Senders) -> None:
    run = busy(lab, senders, seconds=1.5)
    with suppress(ProcessLookupError):
        os.kill(run["pid"], signal.SIGKILL)


def lost_worker(lab: Lab, senders: Senders) -> None:
    run = busy(lab, senders, seconds=1.5)
    if worker := lab.who_runs(run):
        worker.kill()


def overdue(lab: Lab, senders: Senders) -> None:
    lab.emit(senders, "lab.stubborn", seconds=30, number=0)


def cancel(lab: Lab, senders: Senders) -> None:
    run = busy(lab, senders, seconds=6)
    ask(lab, senders, f"/api/v1/runs/{run['id']}/cancel/")


def requeue(lab: Lab, senders: Senders) -> None:
    event = lab.emit(senders, "lab.doomed", number=99)
    failed = "SELECT id FROM runs_run WHERE %s::uuid = ANY(event_ids) AND status = 'failed'"
    found = lab.wait_until(lambda: lab.stack.query(failed, event), 20)
    if found:
        ask(lab, senders, f"/api/v1/runs/{found[0]['id']}/requeue/")


def sigterm(lab: Lab, senders: Senders) -> None:
    run = busy(lab, senders, seconds=8)
    if worker := lab.who_runs(run):
        worker.signal(signal.SIGTERM)


def lost_look(lab: Lab, senders: Senders) -> None:
    """Again if what it waited for came, so that no process had to look back."""
    points = lab.points["worker"]
    for _ in range(4):
        points.arm("before_look_back", "kill")
        lab.emit(senders, "lab.patient", of=f"{senders.seed}-nobody")
        lab.wait_until(lambda: points.hit("before_look_back"), 20)
        points.release("before_look_back")
        if lab.wait_until(lambda: lab.points["dispatcher"].any_hit(), 2):
            return


def uncertain(lab: Lab, senders: Senders) -> None:
    points = lab.points["worker"]
    points.arm("after_intent_commit", "kill")
    lab.emit(senders, "lab.stepping", number=98)
    lab.wait_until(lambda: points.hit("after_intent_commit"), 20)
    points.release("after_intent_commit")
    for run in lab.wait_until(lab.uncertain, 10) or []:
        ask(lab, senders, f"/api/v1/runs/{run['id']}/resolve/", resolution(lab, run))


def fork(lab: Lab, senders: Senders) -> None:
    """One that waits, from there on: it is closed, and the fork waits."""
    event = lab.emit(senders, "lab.patient", of=f"{senders.seed}-nobody")
    query = "SELECT id FROM runs_run WHERE %s::uuid = ANY (event_ids) AND agent = 'patient' AND status = 'waiting'"
    for run in lab.wait_until(lambda: lab.stack.query(query, event), 20) or []:
        ask(lab, senders, f"/api/v1/runs/{run['id']}/fork/", {"step": "event lab.reply#1"})


def resolution(lab: Lab, run: dict[str, Any]) -> dict[str, Any]:
    """What really happened to an uncertain run's step, as the receiver knows."""
    key = f"{run['id']}:{run['key']}"
    if lab.receiver.bodies("/ring", key):
        return {"outcome": "happened", "result": lab.receiver.receipts[key]}
    return {"outcome": "did_not_happen"}


def busy(lab: Lab, senders: Senders, seconds: float) -> dict[str, Any]:
    """A run that takes some time, under way; of a user's agents, any run."""
    query, parameters = "SELECT * FROM runs_run WHERE status = 'running'", []
    if lab.is_lab:
        event = lab.emit(senders, "lab.slow", seconds=seconds, number=0)
        query, parameters = f"{query} AND %s::uuid = ANY (event_ids)", [event]
    found = lab.wait_until(lambda: lab.stack.query(query, *parameters), 25)
    if not found:
        raise NothingRan
    return dict(found[0])


def ask(lab: Lab, senders: Senders, path: str, data: dict[str, Any] | None = None) -> threading.Thread:
    """A person's request, once: what it comes to when the web process dies over it is for the database to say."""
    thread = threading.Thread(target=_ask, args=(lab, senders, path, data or {}), daemon=True)
    senders.threads.append(thread)
    thread.start()
    return thread


def _ask(lab: Lab, senders: Senders, path: str, data: dict[str, Any]) -> None:
    with suppress(*UNHEARD):
        request(lab, senders, path, data)


def request(lab: Lab, senders: Senders, path: str, data: dict[str, Any]) -> int:
    """The status of the answer; one of UNHEARD where there is none."""
    body = json.dumps(data).encode()
    token = f"Bearer {lab.stack.env['WAKEFUL_API_TOKEN']}"
    headers = {"Authorization": token, "Content-Type": "application/json"}
    answer = lab.stack.request("POST", path, body=body, headers=headers, timeout=8)
    lab.history.tell(seed=senders.seed, asked=path, status=answer.status)
    return answer.status


MEET: dict[Need, Callable[[Lab, Senders], None]] = {
    Need.LOAD: nothing,
    Need.LOST_CHILD: lost_child,
    Need.LOST_WORKER: lost_worker,
    Need.OVERDUE: overdue,
    Need.CANCEL: cancel,
    Need.REQUEUE: requeue,
    Need.SIGTERM: sigterm,
    Need.LOST_LOOK: lost_look,
    Need.UNCERTAIN: uncertain,
    Need.FORK: fork,
}
