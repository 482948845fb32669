from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.postgres.fields import ArrayField
from django.db.models import Exists, Func, OuterRef, Q, QuerySet, TextField
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.dataclasses import UnfoldAction
from unfold.enums import ActionVariant

from agents.durations import in_words as span
from agents.registry import all_agents
from config.console.audit import entries_of
from config.console.bulk import carry_out
from config.console.dialogs import attempt, dialog, leave
from config.console.links import event_link, joined, link, page, run_link
from config.console.moments import distance, moment
from config.console.panel import LOOKED_THROUGH, Panel, acting, button, column, is_list, newest
from config.console.sections import Facts, Notice, Section, Table, Text, pretty
from runs.alive import alive
from runs.cancel import cancel
from runs.ids import runs_of_event, runs_of_events
from runs.models import NIL, Attempt, Notification, ProcessedEvent, Run
from runs.requeue import requeue
from runs.states import LIVE, REQUEUEABLE, RunStatus
from triggers.models import Event

STATUS_COLOURS = {
    RunStatus.QUEUED.value: "info",
    RunStatus.RUNNING.value: "primary",
    RunStatus.WAITING.value: "default",
    RunStatus.UNCERTAIN.value: "warning",
    RunStatus.SUCCEEDED.value: "success",
    RunStatus.FAILED.value: "danger",
    RunStatus.CANCELLED.value: "default",
}
TITLES = {
    RunStatus.FAILED.value: "Failed runs",
    RunStatus.CANCELLED.value: f"Cancelled runs among the newest {LOOKED_THROUGH:,}",
}
LEVELS = {RunStatus.SUCCEEDED: "good", RunStatus.FAILED: "bad", RunStatus.UNCERTAIN: "warning"}
# Only a run with a key is ever blocked; saying so lets PostgreSQL use the index of live runs by key.
BLOCKED = Q(status=RunStatus.QUEUED, key__isnull=False, ready_at=None, due_at=None)
SHOWN = 20  # events, effects and notifications of one run


class AgentFilter(admin.SimpleListFilter):
    """The agents some worker has code for: a DISTINCT over all runs would read them all."""

    title = f"agent, in the newest {LOOKED_THROUGH:,} runs"
    parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(agent.name, agent.name) for agent in all_agents()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return newest(queryset).filter(agent=self.value()) if self.value() else queryset


class PlaceFilter(admin.SimpleListFilter):
    """Where a queued run stands."""

    title = "place in the queue"
    parameter_name = "place"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("ready", "ready"), ("due", "to be retried"), ("blocked", "blocked behind its key")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        queued = queryset.filter(status=RunStatus.QUEUED)
        match self.value():
            case "ready":
                return queued.filter(ready_at__isnull=False)
            case "due":
                return queued.filter(due_at__isnull=False)
            case "blocked":
                return queued.filter(BLOCKED)
        return queryset


@admin.register(Run)
class RunPanel(Panel):
    """What runs, what does not and why, what failed."""

    list_display = ("status_label", "agent", "trigger_link", "attempt", "created", "took", "reason")
    list_display_links = ("status_label", "agent")
    list_filter = ("status", PlaceFilter, AgentFilter)
    search_fields = ("trigger",)  # only makes the box appear: see get_search_results
    search_help_text = "a run's id, an event's id, or a trigger's exact slug"
    ordering = ("-id",)
    actions = ("requeue_chosen", "cancel_chosen")
    actions_detail = ("requeue_run", "cancel_run")

    # Lists

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        runs: QuerySet[Run] = super().get_queryset(request).annotate(has_worker=_has_worker())
        if not is_list(request):
            return runs
        # Of all statuses the one that is rare and has no index.
        cancelled_only = request.GET.get("status__exact") == RunStatus.CANCELLED
        return (newest(runs) if cancelled_only else runs).defer("input", "result", "policy")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        if not search_term:
            return queryset, False
        try:
            wanted = UUID(search_term.strip())
        except ValueError:
            return queryset.filter(trigger=search_term.strip()), False
        # Two steps: as one condition it would keep PostgreSQL from using the primary key.
        of_event = runs_of_event(wanted).values_list("id", flat=True)
        return queryset.filter(id__in=[wanted, *of_event]), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = TITLES.get(request.GET.get("status__exact", ""))
        return super().changelist_view(  # type: ignore[no-any-return]
            request, {**({"title": title} if title else {}), **(extra_context or {})}
        )

    @column("status", label=STATUS_COLOURS)
    def status_label(self, run: Run) -> str:
        return run.status

    @column("trigger", empty_value="–")
    def trigger_link(self, run: Run) -> SafeString | None:
        return trigger_of(run)

    @column("created")
    def created(self, run: Run) -> SafeString:
        return moment(run.created_at)

    @column("took", empty_value="–")
    def took(self, run: Run) -> str | None:
        return duration_of(run)

    @column("why")
    def reason(self, run: Run) -> SafeString | str:
        if run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
            return first_line(run.error or run.status_reason)
        return in_words(run) if run.status in LIVE else ""

    # Actions

    def has_requeue_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("runs.requeue_run")

    def has_cancel_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("runs.cancel_run")

    @admin.action(description="Requeue", permissions=["requeue"])
    def requeue_chosen(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        carry_out(
            request,
            queryset.order_by("seq"),  # in the order they first stood in the queue
            lambda run: requeue(run.pk, by=acting(request)),
            done="requeued",
            legal=Q(status__in=REQUEUEABLE),
            otherwise="only failed and cancelled runs can be requeued",
        )

    @admin.action(description="Cancel", permissions=["cancel"])
    def cancel_chosen(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        carry_out(
            request,
            queryset,
            lambda run: cancel(run.pk, by=acting(request)),
            done="cancelled; those that are running stop within seconds",
            legal=Q(status__in=LIVE),
            otherwise="they have finished",
        )

    @button(
        "Requeue",
        permissions=["requeue"],
        icon="replay",
        variant=ActionVariant.PRIMARY,
        dialog=dialog("Requeue this run?", "The same run again, from its first attempt.", "Requeue"),
    )
    def requeue_run(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        attempt(request, lambda: requeue(UUID(object_id), by=acting(request)), done="Requeued.")
        return leave(request, page("runs_run", object_id))

    @button(
        "Cancel",
        permissions=["cancel"],
        icon="cancel",
        variant=ActionVariant.DANGER,
        dialog=dialog(
            "Cancel this run?", "A running one is stopped within seconds; nothing of it commits.", "Cancel the run"
        ),
    )
    def cancel_run(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        attempt(request, lambda: cancel(UUID(object_id), by=acting(request)), done="Cancelled, or about to be.")
        return leave(request, page("runs_run", object_id))

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[UnfoldAction]:
        run = Run.objects.only("status", "payload_removed_at").filter(pk=object_id).first()
        if run is None:
            return []
        status, has_payload = run.status, run.payload_removed_at is None
        possible = {
            "runs_run_requeue_run": status in REQUEUEABLE and has_payload,
            "runs_run_cancel_run": status in LIVE,
        }
        actions = super().get_actions_detail(request, object_id)
        return [action for action in actions if possible[action.action_name]]

    # One run

    def sections(self, request: HttpRequest, obj: Run) -> list[Section]:
        attempts = list(obj.attempts.select_related("worker"))
        events = list(Event.objects.filter(pk__in=obj.event_ids[:SHOWN]).select_related("source").defer("data", "body"))
        sections: list[Section] = [_notice(obj), _facts(obj, events)]
        if obj.error and obj.status != RunStatus.CANCELLED:
            sections.append(Text(title="Error", text=obj.error))
        if attempts and attempts[-1].traceback:
            sections.append(Text(title=f"Traceback of attempt {attempts[-1].number}", text=attempts[-1].traceback))
        if obj.result is not None:
            sections.append(Text(title="Result", text=pretty(obj.result)))
        sections += [_attempts(attempts), _events(obj, events), *_effects(obj)]
        sections.append(entries_of("run", obj.pk))
        sections += [
            Text(title=f"Traceback of attempt {earlier.number}", text=earlier.traceback, folded=True)
            for earlier in attempts[:-1]
            if earlier.traceback
        ]
        if obj.input is not None:
            sections.append(Text(title="Input", text=pretty(obj.input), folded=True))
        sections.append(Text(title="Policy, as it was at dispatch", text=pretty(obj.policy), folded=True))
        return sections


def _has_worker() -> Exists:
    """Does a live worker serve this run's queue and have its agent's code?"""
    agent: Any = Func(OuterRef("agent"), template="ARRAY[%(expressions)s]", output_field=ArrayField(TextField()))
    queue: Any = Func(OuterRef("queue"), template="ARRAY[%(expressions)s]", output_field=ArrayField(TextField()))
    return Exists(alive().filter(kind="worker", agents__contains=agent, queues__contains=queue))


# In words


def in_words(run: Run) -> str | SafeString:
    """What this run is doing, or why it is not."""
    match run.status:
        case RunStatus.QUEUED:
            return _queued(run)
        case RunStatus.RUNNING if run.cancel_requested_at:
            return "Running; it was asked to stop and will within seconds."
        case RunStatus.RUNNING:
            return "Running."
        case RunStatus.SUCCEEDED:
            return "Succeeded: everything it did is committed."
        case RunStatus.FAILED:
            return (
                f"Failed: {run.status_reason}"
                if run.status_reason
                else "Failed: its attempts are used up, or the error was permanent."
            )
        case RunStatus.CANCELLED:
            why = run.error or run.status_reason
            return f"Cancelled: {why}" if why not in ("", RunStatus.CANCELLED) else "Cancelled."
        case RunStatus.UNCERTAIN:
            return f"Uncertain, a person must decide: {run.status_reason}"
    return f"Waiting: {run.status_reason}"


def _queued(run: Run) -> str:
    if run.ready_at is None and run.due_at is None:
        return "Blocked behind another run of its key."
    if run.due_at is not None and run.due_at > timezone.now():
        return f"Tries again {distance(run.due_at)}."
    if not getattr(run, "has_worker", True):
        return f"Ready, but no live worker serves queue “{run.queue}” with code for agent “{run.agent}”."
    return "Ready: waits for a free worker."


def trigger_of(run: Run) -> SafeString | None:
    if not run.trigger:
        return None
    return link(page("triggers_trigger", run.trigger_id), run.trigger) if run.trigger_id else SafeString(run.trigger)


def duration_of(run: Run) -> str | None:
    if run.started_at is None:
        return None
    return span((run.finished_at or timezone.now()) - run.started_at)


def first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 160 else f"{line[:159]}…"


def _notice(run: Run) -> Notice:
    level = LEVELS.get(RunStatus(run.status), "info")
    details: list[Any] = []
    if run.status == RunStatus.QUEUED and run.ready_at is None and run.due_at is None:
        level = "warning"
        details = [format_html("Its key is held by {}.", run_link(holder)) for holder in _holders(run)]
    if run.status == RunStatus.QUEUED and run.ready_at and not getattr(run, "has_worker", True):
        level = "bad"
        details = ["Start a worker that has this agent's code: celery -A config worker. Processes are under Workers."]
    if (
        run.status == RunStatus.FAILED
        and ProcessedEvent.objects.filter(run_id=run.pk, event_id__in=run.event_ids).exists()
    ):
        details = ["Its event has been processed, so it cannot be requeued; replay the event instead."]
    return Notice(text=in_words(run), level=level, details=details)


def _holders(run: Run) -> Iterable[UUID]:
    if run.key is None:
        return []
    return Run.objects.filter(key=run.key, slot__isnull=False, status__in=LIVE).values_list("id", flat=True)[:3]


def _facts(run: Run, events: list[Event]) -> Facts:
    retries = run.policy.get("retries")
    causes = [run_link(event.cause_run_id) for event in events if event.cause_run_id]
    return Facts(
        rows=[
            ("Run", run.pk),
            ("Agent", f"{run.agent} ({run.version})" if run.version else run.agent),
            ("Trigger", trigger_of(run)),
            ("Attempt", f"{run.attempt} of {retries + 1}" if isinstance(retries, int) else run.attempt),
            ("Created", moment(run.created_at)),
            ("Due", run.due_at and moment(run.due_at)),
            ("Ready since", run.ready_at and moment(run.ready_at)),
            ("First started", run.started_at and moment(run.started_at)),
            ("Finished", run.finished_at and moment(run.finished_at)),
            ("First start to end", duration_of(run)),
            ("Payload taken away", run.payload_removed_at and moment(run.payload_removed_at)),
            ("Deadline", moment(run.deadline_at) if run.deadline_at and run.status == RunStatus.RUNNING else ""),
            ("Cancel asked for", run.cancel_requested_at and moment(run.cancel_requested_at)),
            ("Queue and priority", f"{run.queue}, {run.priority}"),
            ("Key", run.key and run.key.partition(":")[2]),
            ("Caused by run", joined(causes) if causes else ""),
            ("First event of the chain", event_link(run.root_id) if run.depth else ""),
            ("Depth in the chain", run.depth or ""),
            ("Replay", "" if str(run.replay_id) == NIL else run.replay_id),
        ]
    )


def _attempts(attempts: list[Attempt]) -> Table:
    return Table(
        title="Attempts",
        headers=("No.", "Outcome", "Started", "Took", "Worker", "Error"),
        rows=[
            (
                one.number,
                one.outcome,
                moment(one.started_at),
                span(one.ended_at - one.started_at),
                f"{one.worker.host}:{one.pid}" if one.worker else "–",
                first_line(one.error),
            )
            for one in attempts
        ],
        empty="None has ended yet.",
    )


def _events(run: Run, events: list[Event]) -> Table:
    more = len(run.event_ids) - len(events)
    return Table(
        title="Woken by",
        headers=("Event", "Type", "Source", "Subject", "Received"),
        rows=[
            (event_link(event.pk), event.type, event.source.slug, event.subject or "–", moment(event.received_at))
            for event in events
        ],
        empty="Its events are gone.",
        note=f"{more} more are not shown." if events and more > 0 else "",
    )


def _effects(run: Run) -> list[Section]:
    emitted = list(Event.objects.filter(cause_run_id=run.pk).order_by("seq").defer("data", "body")[:SHOWN])
    started = list(runs_of_events([event.pk for event in emitted]))
    effects = Table(
        title="What it emitted, and what that started",
        headers=("Event", "Type", "Runs it started"),
        rows=[
            (event_link(event.pk), event.type, run_list([one for one in started if event.pk in one.event_ids]))
            for event in emitted
        ],
        empty="It emitted no events.",
    )
    notes = Notification.objects.filter(run_id=run.pk, created_at__gte=run.created_at).order_by("created_at")[:SHOWN]
    told = [(moment(one.created_at), one.urgency, one.text) for one in notes]
    if not told:
        return [effects]
    return [effects, Table(title="Notifications", headers=("When", "Urgency", "Text"), rows=told, empty="")]


def run_list(runs: list[Run]) -> SafeString | str:
    if not runs:
        return "none"
    return joined([format_html("{} {}", run_link(run.pk, run.agent), run.status) for run in runs])
