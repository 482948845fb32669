"""Dispatch decisions again: events that a paused trigger held, and events that ended in an error.

A request is one row. The dispatcher turns its decisions into redispatches, PIECE at a time, and reads these like events, so
that new events are dispatched at the same time. Decisions are taken in the order of their ids, which is the order in which
the events were dispatched. While a trigger with ordered events is being resumed, its new events are held as well, behind the
others.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import structlog
from django.db import transaction

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import execute, fetch, fetch_as
from runs.exceptions import IllegalState
from runs.models.audit import record, record_about
from triggers.dispatch_lock import LOCK
from triggers.models import Trigger

log = structlog.get_logger(__name__)

PIECE = 500  # decisions moved at once, and the maximum of a trigger's redispatches that wait for dispatch
LONGEST_PAUSE = timedelta(seconds=30)  # before an offer that failed is tried again

Outcome = Literal["held", "error"]

OFFER = """
INSERT INTO triggers_offer (trigger_id, outcome, drop, since, after, until, by)
SELECT trigger.id, %(outcome)s::text, %(drop)s::boolean, %(since)s::timestamptz, 0, {until}, %(by)s::text
FROM triggers_trigger trigger
WHERE (%(trigger)s::uuid IS NULL OR trigger.id = %(trigger)s::uuid) {which}
ON CONFLICT (trigger_id, outcome) DO UPDATE SET
  drop = excluded.drop, after = 0, until = excluded.until, by = excluded.by, created_at = excluded.created_at,
  since = CASE WHEN triggers_offer.since IS NOT NULL AND excluded.since IS NOT NULL
          THEN least(triggers_offer.since, excluded.since) END,
  moved_at = least(triggers_offer.moved_at, excluded.moved_at)
"""
LAST = "(SELECT coalesce(max(id), 0) FROM triggers_decision)"
OFFER_HELD = OFFER.format(until=f"CASE WHEN %(drop)s::boolean THEN {LAST} END", which="")
IS_DROPPED = "SELECT EXISTS (SELECT FROM triggers_offer WHERE trigger_id = %s::uuid AND outcome = 'held' AND drop)"
# Undispatched events of an earlier resume are offered again, in order with events that were held since.
WITHDRAW = """
DELETE FROM triggers_redispatch again USING triggers_decision decision
WHERE again.trigger_id = %s::uuid AND again.dispatched_at IS NULL AND decision.outcome = 'held'
  AND decision.event_id = again.event_id AND decision.trigger_id = again.trigger_id AND decision.replay_id = again.replay_id
"""
# Only earlier decisions: events that end in an error again are not offered endlessly.
OFFER_ERRORS = OFFER.format(
    until=LAST,
    which="AND EXISTS (SELECT FROM triggers_decision d WHERE d.trigger_id = trigger.id AND d.outcome = 'error')",
)
COUNT = """
SELECT count(*) FROM triggers_decision decision JOIN triggers_event event ON event.id = decision.event_id
WHERE (%(trigger)s::uuid IS NULL OR decision.trigger_id = %(trigger)s::uuid) AND decision.outcome = %(outcome)s::text
  AND (%(since)s::timestamptz IS NULL OR decision.created_at >= %(since)s::timestamptz)
  AND (decision.outcome = 'held' OR event.payload_removed_at IS NULL)
"""
# An offer that was put off by a clock that ran ahead is due as well.
IS_DUE = "moved_at NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '30 seconds'"
ARE_DUE = f"SELECT EXISTS (SELECT FROM triggers_offer WHERE {IS_DUE})"  # noqa: S608  (our own parts)
NEXT_DUE = f"""
SELECT min(CASE WHEN {IS_DUE} THEN interval '0' ELSE moved_at - clock_timestamp() END) FROM triggers_offer
"""  # noqa: S608
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s::int, %s::int)"
# Round robin. `waiting` is at most PIECE. Also locks the trigger: a resume locks it first and the offer afterwards.
NEXT = f"""
SELECT offer.id, offer.trigger_id, offer.outcome, offer.drop, offer.since, offer.after, offer.until, offer.by, offer.created_at,
  trigger.paused_at IS NOT NULL AS is_paused,
  (SELECT count(*) FROM (SELECT FROM triggers_redispatch
   WHERE dispatched_at IS NULL AND trigger_id = offer.trigger_id LIMIT %(piece)s::int) waiting) AS waiting
FROM triggers_offer offer JOIN triggers_trigger trigger ON trigger.id = offer.trigger_id
WHERE {IS_DUE}
ORDER BY offer.moved_at, offer.id LIMIT 1 FOR UPDATE OF offer SKIP LOCKED FOR NO KEY UPDATE OF trigger SKIP LOCKED
"""  # noqa: S608
TURN = """
UPDATE triggers_offer SET moved_at = clock_timestamp(), after = %s::bigint, failures = 0, error = '' WHERE id = %s::bigint
"""
FAILED = """
UPDATE triggers_offer SET failures = least(failures + 1, 1000), error = %s::text,
  moved_at = clock_timestamp() + least(interval '1 second' * power(2, least(failures, 10)), %s::interval)
WHERE id = %s::bigint
"""
PIECE_OF = """
SELECT id, event_id, replay_id FROM triggers_decision
WHERE trigger_id = %(trigger)s::uuid AND outcome = %(outcome)s::text AND outcome IN ('held', 'error') AND id > %(after)s::bigint
  AND (%(until)s::bigint IS NULL OR id <= %(until)s::bigint)
  AND (%(before)s::timestamptz IS NULL OR created_at < %(before)s::timestamptz)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY id LIMIT %(piece)s::int
"""
# Locked, as in retention: it either sees the redispatches or was earlier.
WITH_PAYLOAD = """
SELECT id FROM triggers_event WHERE id = ANY(%s::uuid[]) AND payload_removed_at IS NULL ORDER BY id FOR NO KEY UPDATE
"""
# A held replay keeps its replay_id: with the nil id it would be taken for the event's first run.
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
END = "DELETE FROM triggers_offer WHERE id = %s::bigint"
# An offer of errors may end before the offer of held events; until that ends, new events wait behind the held ones.
RESUMED = """
UPDATE triggers_trigger SET resuming_at = NULL WHERE id = %s::uuid AND resuming_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM triggers_offer WHERE trigger_id = triggers_trigger.id AND outcome = 'held')
"""


def offer_held(trigger: Trigger, *, drop: bool, by: str) -> int:
    """Offer or drop the trigger's held events, in the caller's transaction; returns their current number. IllegalState:
    events that were held earlier are still being dropped, and must not run."""
    if not drop and fetch(IS_DROPPED, [trigger.pk])[0][0]:
        raise IllegalState(
            f"Events that trigger {trigger.slug} held earlier are still being dropped. Resume it when that is done, or drop the "
            "events it has held since as well.",
            status="paused",
        )
    execute(OFFER_HELD, {"trigger": trigger.pk, "outcome": "held", "drop": drop, "since": None, "by": by})
    # After OFFER_HELD: a piece that is being moved has committed by then.
    execute(WITHDRAW, [trigger.pk])
    nudge_dispatcher()
    return count("held", trigger.pk)


def offer_errors(*, trigger: Trigger | None = None, since: datetime | None = None, by: str) -> int:
    """Dispatch again all events that ended in an error, of one trigger or of all; returns their number. An event that has a
    run of the trigger gets no second run. Events without payload are skipped."""
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
    """The number of decisions that are still to be offered or to be dispatched again."""
    [(found,)] = fetch(COUNT, {"trigger": trigger_id, "outcome": outcome, "since": since})
    return int(found)


def are_due() -> bool:
    return bool(fetch(ARE_DUE)[0][0])


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The offer whose turn it is. `waiting`: its trigger's undispatched redispatches, at most PIECE."""

    id: int
    trigger_id: UUID
    outcome: str
    drop: bool
    since: datetime | None
    after: int
    until: int | None
    by: str
    created_at: datetime
    is_paused: bool
    waiting: int


def move() -> int:
    """Move a piece of the next offer, under the dispatch lock: a batch that held events when the trigger was resumed has
    committed by then. Returns the number of decisions. An offer that fails is put off, and the others go on."""
    with transaction.atomic():
        if not fetch(TRY_LOCK, LOCK)[0][0]:
            return 0
        found = fetch_as(Turn, NEXT, {"piece": PIECE})
        if not found:
            return 0
        turn = found[0]
        try:
            with transaction.atomic():
                return _move(turn)
        except Exception as error:
            log.exception("offer.not_moved", trigger=str(turn.trigger_id), outcome=turn.outcome)
            execute(FAILED, [f"{type(error).__name__}: {error}"[:500], LONGEST_PAUSE, turn.id])
            return 0


def _move(turn: Turn) -> int:
    # The rest stays held until the next resume. (Without `until`, from an older version, it is unknown what to drop.)
    if turn.is_paused and turn.outcome == "held" and (not turn.drop or turn.until is None):
        return _end(turn)
    room = PIECE if turn.drop else PIECE - turn.waiting
    rows = _piece(turn, room) if room > 0 else []
    if rows:
        _do(rows, turn)
    elif room > 0 and (turn.drop or turn.outcome == "error" or not turn.waiting):
        return _end(turn)
    execute(TURN, [rows[-1][0] if rows else turn.after, turn.id])
    return len(rows)


def _piece(turn: Turn, room: int) -> list[tuple[int, UUID, UUID]]:
    # Do not drop events that the trigger has held since it was paused again. Some of them have an old decision: they were
    # collected by a window, or ended in an error.
    until = turn.until if turn.is_paused or not turn.drop else None
    before = turn.created_at if turn.is_paused and turn.drop else None
    parameters = {
        "trigger": turn.trigger_id,
        "outcome": turn.outcome,
        "after": turn.after,
        "until": until,
        "before": before,
        "since": turn.since,
        "piece": room,
    }
    return [(id, event_id, replay_id) for id, event_id, replay_id in fetch(PIECE_OF, parameters)]


def _do(rows: list[tuple[int, UUID, UUID]], turn: Turn) -> None:
    events = [event_id for _, event_id, _ in rows]
    if turn.drop:
        execute(DROP, [turn.by, [id for id, _, _ in rows]])
        return
    if turn.outcome == "error":
        kept = {id for (id,) in fetch(WITH_PAYLOAD, [events])}
        rows = [row for row in rows if row[1] in kept]
    parameters = {
        "trigger": turn.trigger_id,
        "by": turn.by,
        "events": [event_id for _, event_id, _ in rows],
        "replays": [replay_id for _, _, replay_id in rows],
    }
    execute(REDISPATCH, parameters)


def _end(turn: Turn) -> int:
    execute(END, [turn.id])
    execute(RESUMED, [turn.trigger_id])
    return 1
