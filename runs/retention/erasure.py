"""Erase the inputs, outputs and notifications of finished runs."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, Min, OuterRef, Q

from runs.actions.event_runs import runs_of_event
from runs.db.sql import execute, fetch, fetch_column
from runs.incidents.tell import LINK as INCIDENT
from runs.models import Approval, Delivery, ModelCall, Notification, Run, Wait
from runs.notifications.replies import ERASED_PLACE
from runs.notifications.waiting_deliveries import suppress_waiting
from runs.retention import family
from runs.retention.incidents import erase_incidents
from runs.retention.payloads import remove_payloads
from runs.retention.removal import REMOVING

ERASED = "(erased)"
EMITTING = """
SELECT DISTINCT said.run::uuid FROM runs_outboxmessage,
  LATERAL (SELECT CASE topic WHEN 'event' THEN payload->>'cause_run_id' ELSE payload->>'run' END) said (run)
WHERE topic IN ('event', 'wakeup', 'run.report', 'reply') AND said.run = ANY(%s::text[])
"""
# The key that an agent gave a step or a wait may be personal data as well; its name is part of the code.
ERASE_KEYS = """
UPDATE {table} SET key = split_part(key, ':', 1) || ':(erased)#' || position WHERE run_id = ANY(%s::uuid[]) AND is_keyed
"""
# The names of these entries contain the key of a note.
ERASE_NOTE_KEYS = """
UPDATE runs_step SET key = substring(key FROM '^(?:put |delete )?note ') || '(erased)#' || position
WHERE run_id = ANY(%s::uuid[]) AND NOT is_keyed AND key ~ '^(put |delete )?note '
"""
# Entries of earlier versions have these; new ones have positions. A digest would reveal one of few possible values.
ERASE_AUDIT = """
UPDATE runs_auditentry SET detail = detail - '{step,name,digest}'::text[]
WHERE kind = %(kind)s AND object_id = ANY(%(ids)s::text[]) AND detail ?| '{step,name,digest}'::text[]
"""
# Each later turn of a session received the run's messages. The summary is erased if it includes such a turn.
ERASE_TURNS = """
WITH erased AS (
  SELECT session_id, min(number) AS first FROM agents_sessionturn WHERE run_id = ANY(%(ids)s::uuid[]) GROUP BY session_id
), gone AS (
  DELETE FROM agents_sessionturn turn USING erased WHERE turn.session_id = erased.session_id AND turn.number >= erased.first
  RETURNING turn.session_id, turn.is_summarised
), changed AS (
  SELECT session_id, bool_or(is_summarised) AS is_summarised FROM gone GROUP BY session_id
)
UPDATE agents_session SET revision = revision + 1,
  summary = CASE WHEN changed.is_summarised THEN '' ELSE summary END,
  is_summary_tainted = is_summary_tainted AND NOT changed.is_summarised
FROM changed WHERE id = changed.session_id
"""
# First, as every other writer of turns; the next statement sees what those have committed.
LOCK_SESSIONS = """
SELECT id FROM agents_session
WHERE id IN (SELECT session_id FROM agents_sessionturn WHERE run_id = ANY(%(ids)s::uuid[])) ORDER BY id FOR NO KEY UPDATE
"""
ERASE_NOTES = "DELETE FROM agents_memorynote WHERE run_id = ANY(%(ids)s::uuid[])"
KEYS = [*(ERASE_KEYS.format(table=table) for table in ("runs_step", "runs_wait")), ERASE_NOTE_KEYS]


def holders(event_ids: Sequence[UUID]) -> dict[UUID, set[UUID]]:
    """For each event, the runs that may hold its data: runs of the event, runs whose wait it ended, their children and forks,
    and runs that read their results. Left out: other children of such a parent, which may have got the data from it."""
    found = {event: set(runs_of_event(event).values_list("id", flat=True)) for event in event_ids}
    for event, run in Wait.objects.filter(event_id__among=event_ids).values_list("event_id", "run_id"):
        if event is not None:
            found[event].add(run)
    given = set[UUID]().union(*found.values())
    heirs, readers = family.heirs(given), family.readers(given)
    return {
        event: runs.union(*(kin.get(run, set()) for run in runs for kin in (heirs, readers)))
        for event, runs in found.items()
    }


def erase_runs(run_ids: Sequence[UUID]) -> int:
    """Remove payload, keys (which may be personal data), notifications, notes of the memory and turns in sessions of finished
    runs, in the caller's transaction; return how many had a payload. Live runs are left alone."""
    count = len(remove_payloads(run_ids))
    finished = Run.objects.finished().filter(id__among=run_ids)
    ids = list(finished.values_list("id", flat=True))
    for statement in KEYS:
        execute(statement, [ids])
    ModelCall.objects.filter(wait__run__id__among=ids).delete()
    Wait.objects.filter(run__id__among=ids, kind=Wait.Kind.SESSION).update(asked=None)  # the name may be personal data
    fetch(LOCK_SESSIONS, {"ids": ids})
    for statement in (ERASE_TURNS, ERASE_NOTES):
        execute(statement, {"ids": ids})
    approvals = Approval.objects.filter(wait__run__id__among=ids).values_list("id", flat=True)
    fetch(f"SELECT {REMOVING}")
    for kind, objects in (("run", ids), ("approval", approvals)):
        execute(ERASE_AUDIT, {"kind": kind, "ids": list(map(str, objects))})
    finished.exclude(key=None).update(key=None)
    first = finished.aggregate(first=Min("created_at"))["first"]
    if first:
        topics = [f"{INCIDENT}:{incident}" for incident in erase_incidents(ids, replaced_by=ERASED)]
        erase_notifications(Q(run_id__among=ids) | Q(topic__among=topics), since=first)
    return count


def erase_notifications(which: Q, *, since: datetime) -> None:
    """Erase the texts of these notifications, none of them older than `since`, and do not send them, in the caller's transaction."""
    told = Notification.objects.filter(
        which, created_at__gte=since
    )  # with the index on the time: there is none on the run
    theirs = Q(Exists(told.filter(pk=OuterRef("notification_id"))))
    # A delivery with merged ones is sent with them.
    suppress_waiting(theirs & Q(merged=None), reason="its notification was erased")
    # A server's reply may quote the message.
    Delivery.objects.filter(theirs).exclude(error="").update(error=ERASED)
    # The place of a reply may be a person's address; the subject of a mail is a part of it.
    Delivery.objects.filter(theirs).exclude(place=None).update(place=ERASED_PLACE, name=ERASED, receipt=None)
    told.exclude(text=ERASED).update(text=ERASED, topic="", link="")


def emitting(run_ids: Sequence[UUID]) -> set[UUID]:
    """The runs among these with an emitted event, a reply or a report that is not recorded yet, or with a wake that is still to come."""
    return set(fetch_column(EMITTING, [list(map(str, run_ids))])) if run_ids else set()
