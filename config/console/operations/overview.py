"""The first page: what is stuck, since when, why, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, Min, Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from config.console.incidents.page import what_fails
from config.console.operations.processes import notices
from config.console.operations.upcoming import soonest
from config.console.parts.inboxes import open_incidents, pending_approvals, uncertain_runs
from config.console.parts.links import link, listing, page, run_link
from config.console.parts.moments import distance, moment
from config.console.parts.sections import Section, Table
from config.console.runs.list import BLOCKED
from config.console.runs.words import first_line, trigger_of
from config.health.problems import problems
from config.health.situation import read_situation
from runs.incidents.signs.open_incidents import INCIDENTS
from runs.models import Run
from runs.states import RunStatus
from triggers.dispatch.failing_triggers import erring
from triggers.models import Decision, Event, Schedule, Trigger
from triggers.models.schedule import PAUSED
from triggers.schedules.explain.missed_fires import missed_lately

COUNTED = 1_000  # above this a tile shows “more than”: an exact count of a backlog has no use
SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number, with a link to its list."""

    label: str
    count: int
    url: str = ""
    note: str = ""
    level: str = ""

    @property
    def shown(self) -> str:
        return f"{COUNTED}+" if self.count > COUNTED else str(self.count)


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The context of the index page, limited to what the user may see."""
    if not _may_see(request):
        return context
    return {**context, "title": "Overview", "alarms": _wrong(), "tiles": _tiles(), "sections": _sections(request)}


def _wrong() -> list[Section]:
    # The banner shows pauses, and a table the incidents.
    shown = [problem for problem in problems(read_situation()) if not problem.name.startswith(("paused:", INCIDENTS))]
    return notices(shown)


def _may_see(request: HttpRequest) -> bool:
    return request.user.has_perms(["runs.view_run", "triggers.view_event", "triggers.view_trigger"])


def _tiles() -> list[Tile]:
    undispatched = Event.objects.filter(dispatched_at=None)
    oldest = undispatched.order_by("seq").values_list("received_at", flat=True).first()
    queued = Run.objects.filter(status=RunStatus.QUEUED)
    ready, due = queued.filter(ready_at__isnull=False), queued.filter(due_at__isnull=False)
    blocked = queued.filter(BLOCKED)
    oldest_ready = ready.order_by("queue", "priority", "seq")[: COUNTED + 1].aggregate(oldest=Min("ready_at"))["oldest"]
    # Only among the newest runs: no index finds the failed runs of a day.
    newest_failed = Run.objects.filter(status=RunStatus.FAILED).order_by("-id").values("finished_at")[: COUNTED + 1]
    failed = newest_failed.aggregate(lately=Count("pk", filter=Q(finished_at__gt=Now() - timedelta(hours=24))))[
        "lately"
    ]
    paused = Trigger.objects.filter(enabled=True, paused_at__isnull=False)
    paused_schedules = Schedule.objects.filter(PAUSED)
    runs = "runs_run"
    return [
        _tile(
            "Undispatched events",
            undispatched,
            listing("triggers_event", state="undispatched"),
            note=f"oldest {distance(oldest)}" if oldest else "",
            level="warning",
        ),
        _tile(
            "Runs ready",
            ready,
            listing(runs, place="ready"),
            note=f"oldest {distance(oldest_ready)}" if oldest_ready else "",
        ),
        _tile("Runs running", Run.objects.filter(status=RunStatus.RUNNING), listing(runs, status__exact="running")),
        _tile("Runs delayed", due, listing(runs, place="due"), note="retries, rate limits"),
        _tile("Runs blocked behind a key", blocked, listing(runs, place="blocked")),
        _counted("Failed in 24 h", failed, listing(runs, status__exact="failed", finished="24h"), level="bad"),
        _tile("Open incidents", open_incidents(), listing("runs_incident", status="open"), level="bad"),
        _tile("Approvals to decide", pending_approvals(), listing("runs_approval"), level="warning"),
        _tile("Uncertain runs", uncertain_runs(), listing(runs, status__exact="uncertain"), level="bad"),
        _tile("Paused triggers", paused, listing("triggers_trigger", state="paused"), level="bad"),
        _tile("Paused schedules", paused_schedules, listing("triggers_schedule", state="paused"), level="warning"),
        _tile(
            "Triggers with errors",
            erring(),
            listing("triggers_trigger", state="errors"),
            note="in the last day",
            level="warning",
        ),
        _tile(
            "Held events",
            Decision.objects.filter(outcome=Decision.Outcome.HELD),
            listing("triggers_trigger", state="paused"),
            level="warning",
        ),
    ]


def _tile(label: str, rows: QuerySet[Any], url: str, *, note: str = "", level: str = "") -> Tile:
    return _counted(label, rows[: COUNTED + 1].count(), url, note=note, level=level)


def _counted(label: str, count: int, url: str, *, note: str = "", level: str = "") -> Tile:
    return Tile(label=label, count=count, url=url, note=note, level=level if count else "")


def _sections(request: HttpRequest) -> Sequence[Section]:
    return [what_fails(SHOWN), _paused_triggers(), _failed_runs(), *_missed_fires(), soonest(request, SHOWN)]


def _paused_triggers() -> Table:
    paused = Trigger.objects.filter(enabled=True, paused_at__isnull=False).order_by("paused_at")[:SHOWN]
    return Table(
        title="Paused triggers",
        headers=("Trigger", "Agent", "Since", "Reason", "Failures in a row"),
        rows=[
            (
                link(page("triggers_trigger", one.pk), one.slug),
                one.agent,
                moment(one.paused_at),
                one.paused_reason,
                one.failures_in_a_row,
            )
            for one in paused
        ],
        empty="No trigger is paused.",
    )


def _failed_runs() -> Table:
    # By the time of the failure, of the newest runs: there is no index by that time.
    newest = Run.objects.filter(status=RunStatus.FAILED).order_by("-id").values_list("pk", "finished_at")[:COUNTED]
    ended = {run: at for run, at in newest if at}
    latest = sorted(ended, key=ended.__getitem__, reverse=True)[:SHOWN]
    failed = Run.objects.filter(id__among=latest).order_by("-finished_at").defer("input", "result", "policy", "fired")
    return Table(
        title="Latest failed runs",
        headers=("Run", "Agent", "Trigger", "Failed", "Error"),
        rows=[
            (run_link(run.pk), run.agent, trigger_of(run) or "–", moment(run.finished_at), first_line(run.error))
            for run in failed
        ],
        empty="No run has failed.",
    )


def _missed_fires() -> list[Table]:
    """No section if no schedule missed a fire."""
    missed = missed_lately(SHOWN)
    table = Table(
        title="Fires missed in the last day",
        headers=("Schedule", "Count", "Latest", "Reason"),
        rows=[
            (link(page("triggers_schedule", one.schedule_id), one.name), one.count, moment(one.last), one.reasons)
            for one in missed
        ],
        empty="None.",
    )
    return [table] if missed else []
