"""Retention of runs and their rows. It removes no live run, and no run whose results a live run may still read."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from runs.db.sql import execute, fetch
from runs.models import Run
from runs.retention.family import readers
from runs.retention.incidents import remove_errors
from runs.retention.payloads import remove_payloads
from runs.retention.sweep import Deletion, Step, Walk, few, oldest
from runs.states import LIVE_SQL

PAYLOADS = "runs.payload"
LAG = timedelta(hours=1)  # within it, most runs have finished after their event, whose time is in their id
STEPS = 20_000  # most steps that are emptied or deleted in one transaction, unless one journal has more
# In the order of the primary key, with a limit: the journals of a batch may have millions of entries.
STEPS_OF_EACH = """
SELECT run_id, count(*) FROM (
  SELECT run_id FROM runs_step WHERE run_id = ANY(%s::uuid[]) ORDER BY run_id, key LIMIT %s::int) step
GROUP BY run_id
"""
DELETE = [
    "DELETE FROM runs_attemptrow WHERE run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_runlog WHERE run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_step WHERE run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_approval USING runs_wait wait WHERE wait.id = wait_id AND wait.run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_wait WHERE run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_reservation WHERE run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_budgetwindow WHERE run_id <> '00000000-0000-0000-0000-000000000000' AND run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_coveredrun WHERE run_id = ANY(%s::uuid[])",
    "DELETE FROM runs_run WHERE id = ANY(%s::uuid[])",
]
LONG_STOPPED = """
stopped_at < clock_timestamp() - %(keep)s::interval
AND NOT EXISTS (SELECT FROM runs_run run WHERE run.worker_id = runs_worker.id AND run.status = 'running')
"""
# Open ones as well: what has not failed for so long is gone, or paused.
INCIDENT_IS_OLD = "last_at < (SELECT clock_timestamp()) - %(keep)s::interval"
SAYS_ERROR = f"{INCIDENT_IS_OLD} AND error <> ''"
TURN_IS_OLD = "at < clock_timestamp() - %(keep)s::interval"
# Of a turn in a summary that is in use, the row stays as long as its run does: by it an erasure finds the summary.
SAYS_NO_MORE = f"""
{TURN_IS_OLD} AND NOT (is_summarised AND EXISTS (
  SELECT FROM agents_session session
  WHERE session.id = session_id AND session.summary <> '' AND session.used_at >= clock_timestamp() - %(keep)s::interval))
"""
# The session's summary is removed with it.
SESSION_IS_OLD = """
used_at < clock_timestamp() - %(keep)s::interval
AND NOT EXISTS (SELECT FROM agents_sessionturn turn WHERE turn.session_id = agents_session.id)
AND NOT EXISTS (SELECT FROM runs_run run WHERE run.id = agents_session.run_id AND run.status IN {live})
AND NOT EXISTS (SELECT FROM runs_wait WHERE status = 'open' AND kind = 'session' AND asked->>'session' = agents_session.name)
""".replace("{live}", LIVE_SQL)
CONSENT_IS_OLD = "expires_at < clock_timestamp() - %(keep)s::interval"
WINDOW_IS_OLD = "ends_at < clock_timestamp() - %(keep)s::interval"


def steps() -> list[Step]:
    """Payloads come first: that of an event is removed after those of all its runs."""
    payloads, runs, audit = settings.WAKEFUL_KEEP_PAYLOADS, settings.WAKEFUL_KEEP_RUNS, settings.WAKEFUL_KEEP_AUDIT
    table = "runs_run"
    return [
        Walk(
            name=PAYLOADS, table=table, keep=payloads, judge=with_old_payload, portion=affordable,
            remove=remove_payloads, lag=LAG,
        ),
        Walk(name="runs", table=table, keep=runs, judge=old, portion=affordable, remove=delete_runs, lag=LAG),
        oldest("notifications", "runs_notification", at="created_at", keep=runs),
        incident_payloads(payloads),
        few("incidents", "runs_incident", key="id", which=INCIDENT_IS_OLD, keep=runs),
        few("session turns", "agents_sessionturn", key="id", which=SAYS_NO_MORE, keep=payloads),
        few("summarised turns", "agents_sessionturn", key="id", which=TURN_IS_OLD, keep=runs),
        few("agent sessions", "agents_session", key="id", which=SESSION_IS_OLD, keep=payloads),
        few("budget windows", "runs_budgetwindow", key="id", which=WINDOW_IS_OLD, keep=runs),
        few("workers", "runs_worker", key="id", which=LONG_STOPPED, keep=runs),
        few("pending consents", "runs_pendingconsent", key="id", which=CONSENT_IS_OLD, keep=timedelta()),
        oldest("alarms", "runs_alarm", at="ended_at", keep=audit),
        oldest("audit", "runs_auditentry", at="at", keep=audit),
    ]  # fmt: skip


def incident_payloads(keep: timedelta) -> Deletion:
    """Remove the errors of incidents; the class of the exception stays."""
    found = f"SELECT id FROM runs_incident WHERE {SAYS_ERROR} LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED"  # noqa: S608  (our own parts)
    return Deletion(
        name="incidents.payload",
        keep=keep,
        delete=remove_errors(f"id = ANY(ARRAY({found}))", replaced_by=""),
        which=f"SELECT count(*) FROM runs_incident WHERE {SAYS_ERROR}",  # noqa: S608
    )


def old(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
    """The runs that finished before the cutoff (a run of an old event may be young: it waited, or is a replay), if the runs that
    may read their results did as well: the replay of a parent reads them again."""
    finished = Run.objects.finished().filter(id__among=ids, finished_at__lt=cutoff).order_by("id")
    asked_by = readers(found := list(finished.values_list("id", flat=True)))
    # Locked, so that a run that is being requeued counts as live.
    asking = set[UUID]().union(*asked_by.values())
    done = Run.objects.finished().filter(id__among=sorted(asking), finished_at__lt=cutoff).order_by("id")
    alive = asking - set(done.select_for_update(skip_locked=True).values_list("id", flat=True))
    return [run for run in found if alive.isdisjoint(asked_by.get(run, ()))]


def with_old_payload(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
    having = Run.objects.filter(id__among=ids, payload_removed_at=None)
    return old(list(having.values_list("id", flat=True)), cutoff)


def affordable(ids: Sequence[UUID]) -> Sequence[UUID]:
    """The first of these whose journals have at most STEPS steps together, but at least one."""
    counts = dict(fetch(STEPS_OF_EACH, [list(ids), STEPS + 1]))
    left = STEPS
    for number, run in enumerate(ids):
        left -= counts.get(run, 0)
        if left < 0:
            return ids[: max(number, 1)]
    return ids


def delete_runs(ids: Sequence[UUID]) -> None:
    for statement in DELETE:
        execute(statement, [ids])
