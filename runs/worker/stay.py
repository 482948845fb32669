"""A child stays in its task for a moment after its last run: the next one finds it awake (`runs.queues.stayers`).

It stays only while another child of its worker is free and no other stays, and looks at that again and again: a task of another
queue, or of the user's own, waits for it no longer than GLANCE. Its session is as before when it claims.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connection

from runs.claim import Claim, Nothing, first_claim, found_of
from runs.db.listen import notified, working_session
from runs.db.poll import readable
from runs.db.trip import one_trip
from runs.failpoints import failpoint
from runs.queues.stayers import LOCK, UNLOCK, channel_of
from runs.worker import board

LONGEST = 15  # times WAKEFUL_STAY after which a task ends all the same: Celery counts tasks and memory at their ends
GLANCE = 0.025  # seconds


def seconds_of_task() -> float:
    return LONGEST * settings.WAKEFUL_STAY.total_seconds()


def next_run(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Claim | Nothing | None:
    """Wait for a run and claim it. None: none has come. Nothing: one may have, but is not claimed."""
    if not (settings.WAKEFUL_STAY and board.board.may_stay):
        return None
    board.board.note(board.STAYS)
    try:
        return _next_run(worker_id, queue, agents) if _begins(queue) else None
    except DatabaseError:
        connection.close()  # its session gives up what it holds; the answer of a claim may be lost
        return Nothing("")
    finally:
        board.board.note(board.BUSY)


def _begins(queue: str) -> bool:
    """False: another child waits for this queue."""
    notified()  # those that led to earlier runs
    with one_trip(begins=False) as trip:
        trip.add(f"LISTEN {channel_of(queue)}")
        lock = trip.add(LOCK, [queue])
    [(is_held,)] = lock.rows()
    if not is_held:
        _end(queue)
    return bool(is_held)


def _next_run(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Claim | Nothing | None:
    if not _is_woken():
        _end(queue, UNLOCK)
        return Nothing("") if notified() else None  # one came meanwhile
    failpoint("after_woken")
    asked = time.monotonic()
    with one_trip(begins=False) as trip:
        trip.add(UNLOCK, [queue])
        trip.add(f"UNLISTEN {channel_of(queue)}")
        answer = trip.add(*first_claim(worker_id, queue, agents), found_of)
    [found] = answer.rows()
    return replace(found, asked=asked) if isinstance(found, Claim) else Nothing("")


def _is_woken() -> bool:
    """Wait. What makes the session readable is a NOTIFY, or its end, which the claim notices."""
    until = time.monotonic() + settings.WAKEFUL_STAY.total_seconds()
    is_woken = notified()  # it came with an answer
    while not is_woken and (left := until - time.monotonic()) > 0 and board.board.may_stay:
        is_woken = bool(readable(working_session(), min(left, GLANCE)))
    return is_woken


def _end(queue: str, *unlock: str) -> None:
    with one_trip(begins=False) as trip:
        for statement in unlock:
            trip.add(statement, [queue])
        trip.add(f"UNLISTEN {channel_of(queue)}")
