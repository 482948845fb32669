"""Decisions that the dispatcher gets again: what a paused trigger has held, and what ended in an error.

Whoever asks writes one row. The dispatcher moves the decisions, PIECE at a time, to redispatches, which it reads like events;
so it goes on beside fresh events however many there are. Decisions are taken in the order of their ids, which is the order in
which the events were dispatched. While a trigger that orders its events by a key is being resumed, fresh events of it are held
as well, behind the others.
"""

from datetime import datetime
from typing import Literal
from uuid import UUID

from django.db import transaction

from runs.audit import record, record_about
from runs.nudge import nudge_dispatcher
from runs.sql import execute, fetch
from triggers.leadership import LOCK
from triggers.models import Trigger

PIECE = 500  # decisions moved at once; and no more of a trigger's while so many wait for dispatch

Outcome = Literal["held", "error"]

OFFER = """
INSERT INTO triggers_offer (trigger_id, outcome, drop, since, after, until, by)
SELECT trigger.id, %(outcome)s::text, %(drop)s::boolean, %(since)s::timestamptz, 0, {until}, %(by)s::text
FROM triggers_trigger trigger
WHERE (%(trigger)s::uuid IS NULL OR trigger.id = %(trigger)s::uuid) {which}
ON CONFLICT (trigger_id, outcome) DO UPDATE SET
  drop = excluded.drop, since = excluded.since, after = 0, until = excluded.until, by = excluded.by
"""
OFFER_HELD = OFFER.format(until="NULL", which="")
# Those that end in an error once more are not offered for ever.
OFFER_ERRORS = OFFER.format(
    until="(SELECT max(id) FROM triggers_decision)",
    which="AND EXISTS (SELECT FROM triggers_decision d WHERE d.trigger_id = trigger.id AND d.outcome = 'error')",
)
COUNT = """
SELECT count(*) FROM triggers_decision decision JOIN triggers_event event ON event.id = decision.event_id
WHERE (%(trigger)s::uuid IS NULL OR decision.trigger_id = %(trigger)s::uuid) AND decision.outcome = %(outcome)s::text
  AND (%(since)s::timestamptz IS NULL OR decision.created_at >= %(since)s::timestamptz)
  AND (decision.outcome = 'held' OR event.payload_removed_at IS NULL)
"""
ARE_OPEN = "SELECT EXISTS (SELECT FROM triggers_offer)"
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s::int, %s::int)"
# In turn. `waiting` is no more than PIECE.
NEXT = """
SELECT offer.id, offer.trigger_id, offer.outcome, offer.drop, offer.since, offer.after, offer.until, offer.by,
  trigger.paused_at IS NOT NULL,
  (SELECT count(*) FROM (SELECT FROM triggers_redispatch
   WHERE dispatched_at IS NULL AND trigger_id = offer.trigger_id LIMIT %(piece)s::int) waiting)
FROM triggers_offer offer JOIN triggers_trigger trigger ON trigger.id = offer.trigger_id
ORDER BY offer.moved_at, offer.id LIMIT 1 FOR UPDATE OF offer SKIP LOCKED
"""
TURN = "UPDATE triggers_offer SET moved_at = clock_timestamp(), after = %s::bigint WHERE id = %s::bigint"
PIECE_OF = """
SELECT id, event_id, replay_id FROM triggers_decision
WHERE trigger_id = %(trigger)s::uuid AND outcome = %(outcome)s::text AND outcome IN ('held', 'error') AND id > %(after)s::bigint
  AND (%(until)s::bigint IS NULL OR id <= %(until)s::bigint)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY id LIMIT %(piece)s::int
"""
# Locked: retention, which locks as well, either sees what is offered or was before it.
WITH_PAYLOAD = """
SELECT id FROM triggers_event WHERE id = ANY(%s::uuid[]) AND payload_removed_at IS NULL ORDER BY id FOR NO KEY UPDATE
"""
# A held replay keeps its replay_id: under the nil one it would be taken for the run the event has had before.
REDISPATCH = """
INSERT INTO triggers_redispatch (event_id, trigger_id, replay_id, by)
SELECT piece.event_id, %(trigger)s::uuid, piece.replay_id, %(by)s::text
FROM unnest(%(events)s::uuid[], %(replays)s::uuid[]) WITH ORDINALITY AS piece(event_id, replay_id, position)
WHERE NOT EXISTS (
  SELECT FROM triggers_redispatch offered
  WHERE offered.event_id = piece.event_id AND offered.trigger_id = %(trigger)s::uuid
    AND offered.replay_id = piece.replay_id AND offered.dispatched_at IS NULL)
ORDER BY piece.position
"""
DROP = """
UPDATE triggers_decision SET outcome = 'dropped', reason = 'dropped on resume by ' || %s::text WHERE id = ANY(%s::bigint[])
"""
# What an earlier resume had offered before the trigger was paused again.
WITHDRAW = """
UPDATE triggers_redispatch SET dispatched_at = clock_timestamp()
WHERE event_id = ANY(%s::uuid[]) AND trigger_id = %s::uuid AND dispatched_at IS NULL
"""
END = "DELETE FROM triggers_offer WHERE id = %s::bigint"
# An offer of errors may end while one of held events is still under way: fresh events wait behind the held ones until then.
RESUMED = """
UPDATE triggers_trigger SET resuming_at = NULL WHERE id = %s::uuid AND resuming_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM triggers_offer WHERE trigger_id = triggers_trigger.id AND outcome = 'held')
"""


def offer_held(trigger: Trigger, *, drop: bool, by: str) -> int:
    """Offer or drop what the trigger holds, in the caller's transaction; how many they are now."""
    execute(OFFER_HELD, {"trigger": trigger.pk, "outcome": "held", "drop": drop, "since": None, "by": by})
    nudge_dispatcher()
    return count("held", trigger.pk)


def offer_errors(*, trigger: Trigger | None = None, since: datetime | None = None, by: str) -> int:
    """Dispatch again all that ended in an error, of one trigger or of all; how many they are. An event that has a run of the
    trigger gets no second one. Events that have lost their payload are left out."""
    with transaction.atomic():
        id = trigger.pk if trigger else None
        execute(OFFER_ERRORS, {"trigger": id, "outcome": "error", "drop": False, "since": since, "by": by})
        found = count("error", id, since)
        detail = {"events": found, "since": since.isoformat() if since else None}
        if trigger:
            record(by, "redispatch_errors", trigger, **detail)
        else:
            record_about(by, "redispatch_errors", "trigger", "*", **detail)
        nudge_dispatcher()
    return found


def count(outcome: Outcome, trigger_id: UUID | None = None, since: datetime | None = None) -> int:
    """Decisions that are still to be offered, or wait for dispatch once more."""
    [(found,)] = fetch(COUNT, {"trigger": trigger_id, "outcome": outcome, "since": since})
    return int(found)


def are_open() -> bool:
    return bool(fetch(ARE_OPEN)[0][0])


def move() -> int:
    """Do a piece of the offer whose turn it is, under the dispatch lock: a batch that was holding events when the trigger was
    resumed has committed by then. How many decisions were done."""
    with transaction.atomic():
        if not fetch(TRY_LOCK, LOCK)[0][0]:
            return 0
        found = fetch(NEXT, {"piece": PIECE})
        if not found:
            return 0
        [(id, trigger_id, outcome, drop, since, after, until, by, is_paused, waiting)] = found
        if is_paused and outcome == "held":
            return _end(id, trigger_id)  # what is left is held, and offered by the next resume
        room = PIECE if drop else PIECE - waiting
        rows = _piece(trigger_id, outcome, after, until, since, room) if room > 0 else []
        if rows:
            _do(rows, trigger_id, outcome, drop, by)
        elif room > 0 and (drop or outcome == "error" or not waiting):
            return _end(id, trigger_id)
        execute(TURN, [rows[-1][0] if rows else after, id])
        return len(rows)


def _piece(
    trigger_id: UUID, outcome: str, after: int, until: int | None, since: datetime | None, room: int
) -> list[tuple[int, UUID, UUID]]:
    parameters = {"trigger": trigger_id, "outcome": outcome, "after": after, "until": until, "since": since}
    return [(id, event_id, replay_id) for id, event_id, replay_id in fetch(PIECE_OF, {**parameters, "piece": room})]


def _do(rows: list[tuple[int, UUID, UUID]], trigger_id: UUID, outcome: str, drop: bool, by: str) -> None:
    events = [event_id for _, event_id, _ in rows]
    if drop:
        execute(DROP, [by, [id for id, _, _ in rows]])
        execute(WITHDRAW, [events, trigger_id])
        return
    if outcome == "error":
        kept = {id for (id,) in fetch(WITH_PAYLOAD, [events])}
        rows = [row for row in rows if row[1] in kept]
    parameters = {
        "trigger": trigger_id,
        "by": by,
        "events": [event_id for _, event_id, _ in rows],
        "replays": [replay_id for _, _, replay_id in rows],
    }
    execute(REDISPATCH, parameters)


def _end(id: int, trigger_id: UUID) -> int:
    execute(END, [id])
    execute(RESUMED, [trigger_id])
    return 1
