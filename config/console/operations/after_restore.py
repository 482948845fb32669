"""The page “After a restore”: checks to make after a backup was restored, before runs start again."""

from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.links import joined, link, listing
from config.console.parts.moments import moment
from config.console.parts.sections import Notice, Section, Table
from runs.db.sql import fetch
from runs.models import Attempt, AttemptRow, OutboxMessage, Queue, Run, Worker
from runs.queues.pause import EVERY
from runs.states import RunStatus
from triggers.models import Event

SHOWN = 10
COUNTED = 10_000
LATEST = 1_000  # attempts to check: while all queues are paused, no new ones are added
# The newest row by its time-ordered id has about the highest number; a sequence behind it would put new work first.
SEQUENCES = """
SELECT (SELECT last_value FROM runs_run_seq) >= coalesce((SELECT seq FROM runs_run ORDER BY id DESC LIMIT 1), 0)
   AND (SELECT last_value FROM triggers_seq) >= coalesce((SELECT seq FROM triggers_event ORDER BY id DESC LIMIT 1), 0)
"""


def restored(request: HttpRequest) -> dict[str, Any]:
    """The page's sections, to those who may see processes and runs."""
    if not (request.user.has_perm("runs.view_worker") and request.user.has_perm("runs.view_run")):
        raise PermissionDenied
    paused_at = Queue.objects.filter(pk=EVERY).values_list("paused_at", flat=True).first()
    return {"title": "After a restore", "sections": [_notice(paused_at), _checks(paused_at), _waiting()]}


def _notice(paused_at: datetime | None) -> Section:
    if paused_at is None:
        return Notice(
            level="warning",
            text="All queues are open: runs start.",
            details=[
                format_html(
                    "After a restore, start with <code>manage.py up --paused</code>, or pause all queues on the {} page "
                    "before the workers start; then return to this page.",
                    link(reverse("admin:runs_queue_processes"), "Processes"),
                )
            ],
        )
    resume = link(reverse("admin:runs_queue_resume", args=["all"]), "resume all queues")
    return Notice(
        level="warning",
        text="All queues are paused: events are accepted and become runs, but no run starts.",
        details=[format_html("After all checks below, {}.", resume)],
    )


def _checks(paused_at: datetime | None) -> Section:
    return Table(
        title="Checks before resuming",
        headers=("Check", "Result", "Reason and remedy"),
        is_cards=True,
        rows=[
            (
                "Age of the backup",
                format_html("last process seen before this start: {}", moment(_last_seen(paused_at))),
                "Events accepted after that time are lost. Ask senders to deliver again from then on: events that are recorded "
                "here are duplicates and start nothing.",
            ),
            (
                "Repeated events",
                _newest_event(),
                "The record of processed events is as old as the backup. If an event processed after the backup is delivered "
                "again, it starts a run again. Cancel runs whose effect must not happen twice.",
            ),
            (
                "Schedules that were due in the gap",
                link(listing("triggers_schedule"), "their next fires"),
                "Beat has caught up by the policy of each schedule: no missed fire, the latest one, or all. Their runs are listed "
                "below; cancel those that are no longer useful.",
            ),
            (
                "Runs that were running",
                _interrupted(paused_at),
                "They start again from their last commit. Writes to this database after it were rolled back; calls to other "
                "services after it are repeated.",
            ),
            (
                "The outbox",
                f"{OutboxMessage.objects.all()[:COUNTED].count():,} messages",
                "Messages that were sent after the backup are sent again.",
            ),
            (
                "The order of work",
                _sequences(),
                "Runs and events are ordered by sequences of the database. A sequence behind its rows puts new work first.",
            ),
            (
                "Redis or another broker",
                "needs no restore",
                "It holds doorbells only and may be emptied (FLUSHDB): the dispatcher rings again for waiting runs.",
            ),
            (
                "Payloads that were erased",
                "not known here",
                "The restore undoes erasures made after the backup. Repeat them from a record outside this database.",
            ),
            (
                "Secrets and settings",
                SafeString("<code>manage.py doctor</code>"),
                "It checks that WAKEFUL_ENCRYPTION_KEYS can decrypt the secret of every source, and lists other problems.",
            ),
        ],
        empty="",
    )


def _waiting() -> Section:
    head = Run.objects.filter(status=RunStatus.QUEUED, ready_at__isnull=False).order_by("queue", "priority", "seq")
    ids = list(head.values_list("id", flat=True)[:COUNTED])
    counted = (
        Run.objects.filter(id__in=ids).values("trigger").annotate(number=Count("id")).order_by("-number", "trigger")
    )
    rows = [(one["trigger"] or "–", f"{one['number']:,}", _runs_of(one["trigger"])) for one in counted[:SHOWN]]
    return Table(
        title="Runs that start as soon as you resume",
        headers=("Trigger", "Ready", "Runs"),
        rows=rows,
        empty="None.",
        note="To prevent the start of a run, cancel it in the list. A paused trigger holds its new events, not these runs.",
    )


def _runs_of(trigger: str) -> SafeString:
    query = {"place": "ready", **({"q": trigger} if trigger else {})}
    return link(listing("runs_run", **query), "list")


def _last_seen(paused_at: datetime | None) -> datetime | None:
    # Processes from before the backup have not been seen since; current ones have started after it.
    before = (
        Worker.objects.filter(stopped_reason="unseen")
        if paused_at is None
        else Worker.objects.filter(started_at__lt=paused_at, seen_at__lt=paused_at)
    )
    seen: datetime | None = before.aggregate(at=Max("seen_at"))["at"]
    return seen


def _newest_event() -> SafeString | str:
    newest = Event.objects.order_by("-id").values_list("received_at", flat=True).first()
    if newest is None:
        return "no events"
    return joined(["newest:", moment(newest)], " ")


def _interrupted(paused_at: datetime | None) -> str:
    if paused_at is None:
        return "–"
    newest = AttemptRow.objects.order_by("-id").values_list("outcome", "ended_at")[:LATEST]
    lost = sum(outcome == Attempt.Outcome.LOST and ended_at >= paused_at for outcome, ended_at in newest)
    return f"{lost} recovered from lost processes"


def _sequences() -> SafeString:
    [(fine,)] = fetch(SEQUENCES)
    level, word = (
        ("good", "sequences are ahead of the newest rows") if fine else ("bad", "a sequence is behind its rows")
    )
    return format_html('<span class="console-dot console-dot-{}">{}</span>', level, word)
