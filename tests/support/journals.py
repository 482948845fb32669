"""Rows of durable runs for tests, with sane defaults."""

from itertools import count
from typing import Any
from uuid import uuid4

from django.utils import timezone

from agents.journal.canonical import digest_of
from runs.models import Approval, Run, Step, Wait
from runs.states import RunStatus
from tests.support.runs import make_run

ARGUMENTS = {"invoice": 7, "cents": 1200}  # what `make_asking_run` asks about
_positions = count()


def make_step(run: Run, key: str = "mail", *, status: str = "done", **fields: Any) -> Step:
    """A step that is done by default; one that has only started is at most once."""
    started = status == Step.Status.STARTED
    values = {
        "position": next(_positions),
        "effect": Step.Effect.AT_MOST_ONCE if started else Step.Effect.TRANSACTIONAL,
        "epoch": 1,
        "ended_at": None if started else timezone.now(),
        **fields,
    }
    return Step.objects.create(run=run, key=key, status=status, **values)


def make_wait(run: Run, kind: str = "time", *, status: str = "open", key: str = "", **fields: Any) -> Wait:
    """A wait, open by default."""
    now = timezone.now()
    values = {
        "position": next(_positions),
        "ended_at": None if status == Wait.Status.OPEN else now,
        "due_at": now if kind == Wait.Kind.TIME else None,
        **fields,
    }
    return Wait.objects.create(run=run, key=key or f"{kind}#{uuid4().hex[:8]}", kind=kind, status=status, **values)


def make_approval(run: Run, *, status: str = "done", **fields: Any) -> Approval:
    """An approval and the wait for it; approved unless its wait has come to another end."""
    wait = make_wait(run, Wait.Kind.APPROVAL, status=status)
    question, arguments = fields.get("question", "Send it?"), fields.get("arguments")
    question_fields = {"question": question, "arguments": arguments, "digest": digest_of(question, arguments)}
    decided = {
        "decision": "approve", "decided_by": "admin:bob", "decided_at": timezone.now(), "decided_arguments": arguments,
        "decided_digest": question_fields["digest"],
    }  # fmt: skip
    values = {**question_fields, **(decided if status == Wait.Status.DONE else {}), **fields}
    return Approval.objects.create(id=uuid4(), wait=wait, **values)


def make_asking_run(**fields: Any) -> Approval:
    """A run that waits for a decision on ARGUMENTS."""
    run = make_run(status=RunStatus.WAITING, **fields)
    digest = digest_of("Refund?", ARGUMENTS)
    return make_approval(run, status="open", question="Refund?", arguments=ARGUMENTS, digest=digest)


def make_question() -> Approval:
    """A run that waits for the answer to a question of its model."""
    arguments = {"question": "Which region?", Approval.ANSWER: ""}
    made = make_approval(
        make_run(status=RunStatus.WAITING), status="open", question="Which region?", arguments=arguments
    )
    made.wait.key = "approval:llm clerk#1: ask_human call-1 answer"
    made.wait.save(update_fields=["key"])
    return made


def make_child(parent: Run, *, status: str = RunStatus.SUCCEEDED, **fields: Any) -> Run:
    """A run that another one has spawned."""
    values = {"agent": "child", "event_ids": [], "parent_id": parent.id, "root_id": parent.root_id, **fields}
    # Its id has the time of its parent's.
    return make_run(event_id=parent.id, status=status, trigger="", depth=parent.depth + 1, **values)


def make_fork(origin: Run, *, status: str = RunStatus.SUCCEEDED, **fields: Any) -> Run:
    """A run that goes on from a part of another one's journal."""
    values = {"event_ids": origin.event_ids, "root_id": origin.root_id, "replay_id": uuid4(), **fields}
    return make_run(event_id=origin.id, status=status, trigger=origin.trigger, forked_from_id=origin.id, **values)
