"""Backfills: past times of a schedule that a person has fired later."""

from collections.abc import Mapping

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.safestring import SafeString

from config.console.access.audit import entries_of
from config.console.events.decisions import reason_of
from config.console.parts.dialogs import dialog
from config.console.parts.html import format_html
from config.console.parts.links import event_link, link, listing, page
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.sections import Facts, Notice, Section, Table
from config.console.parts.service_button import service_button
from config.console.runs.words import run_list
from config.console.schedules.backfills.words import COLOURS, bar_of, range_of, state_of_backfill
from config.console.schedules.words import in_zone, zone_of_schedule
from runs.actions.event_runs import runs_of_events
from triggers.models import Backfill, BackfillTick, Decision
from triggers.schedules.backfill.advance import cancel_backfill, progress

SHOWN = 50  # nominal times
CANCEL = dialog(
    "Cancel this backfill?", "No further runs start. Runs that have started continue.", "Cancel the backfill"
)


@admin.register(Backfill)
class BackfillPanel(Panel):
    """Backfills of schedules, running and ended."""

    list_display = ("schedule_name", "of", "state", "times", "at_once", "asked", "ended")
    list_filter = ("status",)
    list_select_related = ("schedule__task__crontab",)
    search_fields = ("schedule__task__name", "by")
    search_help_text = "schedule or account"
    ordering = ("-id",)
    actions_detail = ("cancel",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Backfill]:
        return super().get_queryset(request).select_related("schedule__task__crontab")

    def title_of(self, backfill: Backfill) -> str:
        return f"{backfill.schedule}: {range_of(backfill)}"

    @column("schedule")
    def schedule_name(self, backfill: Backfill) -> str:
        return str(backfill.schedule.task.name)

    @column("range")
    def of(self, backfill: Backfill) -> str:
        return range_of(backfill)

    @column("state", label={**COLOURS, "cancelling": "warning"})
    def state(self, backfill: Backfill) -> str:
        return state_of_backfill(backfill)

    @column("times")
    def times(self, backfill: Backfill) -> str:
        return f"{backfill.total:,}"

    asked = time_column("created", "created_at")
    ended = time_column("ended", "ended_at")

    @service_button("Cancel", "triggers.backfill_schedule", CANCEL, icon="cancel", variant="danger", done="Cancelled.")
    def cancel(self, object_id: str, by: str) -> None:
        cancel_backfill(get_object_or_404(Backfill, pk=object_id), by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        return {"cancel": Backfill.objects.filter(pk=object_id, status=Backfill.Status.RUNNING).exists()}

    def sections(self, request: HttpRequest, obj: Backfill) -> list[Section]:
        return [_notice(obj), bar_of(obj), _facts(obj), _times(obj), entries_of("backfill", obj.pk)]


def _notice(backfill: Backfill) -> Notice:
    now = progress(backfill)
    match state_of_backfill(backfill):
        case "running" if now.obstacle:
            return Notice(text=f"Not progressing: {now.obstacle}.", level="warning")
        case "running":
            return Notice(text=f"Running, {backfill.at_once} at once: {now.ended:,} of {now.total:,} have ended.")
        case "cancelling":
            return Notice(text="Cancelled: it ends when its last started run ends.", level="warning")
        case "cancelled":
            return Notice(text="Cancelled.", level="warning")
    if unlucky := now.failed + now.refused + now.cancelled:
        return Notice(
            text=f"Done; {unlucky:,} of {now.total:,} times did not succeed.",
            level="warning",
            details=[_way_to_failed_runs(backfill)] if now.failed else [],
        )
    return Notice(text="Done: every time in its range has fired, and every run has ended.", level="good")


def _way_to_failed_runs(backfill: Backfill) -> SafeString:
    trigger = backfill.schedule.trigger
    failed = listing("runs_run", status__exact="failed", **({"q": trigger.slug} if trigger else {}))
    return format_html("Find the cause, fix it, then requeue: {}.", link(failed, "failed runs"))


def _facts(backfill: Backfill) -> Facts:
    return Facts(
        rows=[
            ("Schedule", link(page("triggers_schedule", backfill.schedule_id), backfill.schedule.task.name)),
            ("From", moment(backfill.start)),
            ("To (exclusive)", moment(backfill.end)),
            ("Range", range_of(backfill)),
            ("Concurrent runs", backfill.at_once),
            ("Priority", backfill.priority),
            ("Already fired times", "fire again" if backfill.again else "are skipped"),
            ("Created", moment(backfill.created_at)),
            ("By", backfill.by),
            ("Ended", backfill.ended_at and moment(backfill.ended_at)),
        ]
    )


def _times(backfill: Backfill) -> Table:
    zone = zone_of_schedule(backfill.schedule)
    ticks = list(BackfillTick.objects.filter(backfill=backfill).order_by("-nominal")[: SHOWN + 1])
    ids = [tick.event_id for tick in ticks]
    runs = list(runs_of_events(ids).only("id", "agent", "status", "event_ids")) if ids else []
    decisions = {one.event_id: one for one in Decision.objects.filter(event_id__in=ids)}
    return Table(
        title="Times, newest first",
        headers=(f"Nominal ({zone})", "Outcome", "Runs", "Event"),
        rows=[
            (
                in_zone(tick.nominal, zone),
                _outcome(tick, decisions.get(tick.event_id)),
                run_list([run for run in runs if tick.event_id in run.event_ids]),
                event_link(tick.event_id),
            )
            for tick in ticks[:SHOWN]
        ],
        empty="No time has fired yet.",
        note=f"The newest {SHOWN}; earlier ones are not shown." if len(ticks) > SHOWN else "",
    )


def _outcome(tick: BackfillTick, decision: Decision | None) -> str:
    if tick.outcome == BackfillTick.Outcome.REFUSED and decision:
        return reason_of(decision)
    return str(tick.get_outcome_display())
