"""The list of runs, by status, with the reason of each run that does not progress."""

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, Func, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from agents.registry import all_agents
from config.console.lists.panel import ArrangedPanel
from config.console.parts.filters import ConditionFilter, LinkedFilter
from config.console.parts.html import format_html
from config.console.parts.links import event_link, run_link
from config.console.parts.pages import plain_page
from config.console.parts.panel import LOOKED_THROUGH, column, is_list, newest, time_column
from config.console.parts.sections import Facts, Section, Text
from config.console.runs.bulk import Deed, carry_out_or_ask
from config.console.runs.buttons import RunButtons
from config.console.runs.comparison import comparison
from config.console.runs.find import HELP, find_runs
from config.console.runs.input_and_result import SEES_EVENTS
from config.console.runs.journal_entry import fork_url, open_entry
from config.console.runs.last_runs import LastFilter
from config.console.runs.live import live_answer
from config.console.runs.page import changing_sections_of, sections_of
from config.console.runs.parent_filter import ParentFilter
from config.console.runs.search_form import RunList, SearchForm, span_of
from config.console.runs.started_filter import StartedFilter
from config.console.runs.subjects import subjects_of, title_of
from config.console.runs.transcript import spent
from config.console.runs.uncertain import doubt_about, unproved_step_of, with_doubts
from config.console.runs.waits import with_open_waits
from config.console.runs.words import STATUS_COLOURS, duration_of, first_line, in_words, trigger_of
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.actions.select import queued
from runs.durable.transcript import usage_of, with_usage
from runs.models import CoveredRun, Queue, Run
from runs.processes.alive import alive
from runs.states import LIVE, REQUEUEABLE, RunStatus

TITLES = {
    RunStatus.FAILED.value: "Failed runs",
    RunStatus.UNCERTAIN.value: "Uncertain runs",
    RunStatus.CANCELLED.value: f"Cancelled runs among the newest {LOOKED_THROUGH:,}",
}
# Only a run with a key can be blocked; the condition lets PostgreSQL use the index of live runs by key.
BLOCKED = Q(status=RunStatus.QUEUED, key__isnull=False, ready_at=None, due_at=None)
COVERED = 10_000  # last runs of an incident
LONGEST_ID = 19  # characters, with a sign
REQUEUE = Deed(
    verb="Requeue",
    done="requeued",
    legal=Q(status__in=REQUEUEABLE),
    otherwise="only failed and cancelled runs can be requeued",
    act=lambda run, *, by: requeue(run.pk, by=by),
)
CANCEL = Deed(
    verb="Cancel",
    done="cancelled; those that are running stop within seconds",
    legal=Q(status__in=LIVE),
    otherwise="already finished",
    act=lambda run, *, by: cancel(run.pk, by=by),
)


class AgentFilter(admin.SimpleListFilter):
    """Agents that a worker has code for: a DISTINCT over all runs would read the whole table."""

    title = f"agent, in the newest {LOOKED_THROUGH:,} runs"  # of those that are asked for by time
    parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(agent.name, agent.name) for agent in all_agents()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        if not self.value():
            return queryset
        # What runs now is few rows that an index finds. In a span of time, the newest ones of the span are looked through.
        is_bounded = request.GET.get("status__exact") == RunStatus.RUNNING
        among = queryset if is_bounded else newest(queryset, span_of(request))
        return among.filter(agent=self.value())


class PlaceFilter(ConditionFilter):
    """The place of a queued run."""

    title = "place in the queue"
    parameter_name = "place"
    conditions: ClassVar = {
        "ready": ("ready", Q(status=RunStatus.QUEUED, ready_at__isnull=False)),
        "due": ("delayed: a retry or a rate limit", Q(status=RunStatus.QUEUED, due_at__isnull=False)),
        "blocked": ("blocked behind its key", BLOCKED),
    }


class FinishedFilter(admin.SimpleListFilter):
    """Time of finish, among the newest runs only, because no index finds the runs of a day."""

    title = "finished"
    parameter_name = "finished"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("1h", "in the last hour"), ("24h", "in the last 24 hours")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        within = {"1h": timedelta(hours=1), "24h": timedelta(hours=24)}.get(self.value() or "")
        return newest(queryset).filter(finished_at__gt=Now() - within) if within else queryset


class IncidentFilter(LinkedFilter):
    """The runs that an incident covers."""

    title = "incident"
    parameter_name = "incident"

    def parse(self, text: str) -> int | None:
        return int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST_ID else None

    def label(self, value: int) -> str:
        return f"covered by incident {value}"

    def narrow(self, rows: QuerySet[Run], value: int) -> QuerySet[Run]:
        covered = CoveredRun.objects.filter(incident=value).order_by("-id")[:COVERED]
        return rows.filter(pk__in=covered.values("run_id"))


class MutedFilter(ConditionFilter):
    """Runs that a muted incident covers are left out."""

    title = "muted causes"
    parameter_name = "muted"
    conditions: ClassVar = {
        "no": (
            "without muted ones",
            ~Q(Exists(CoveredRun.objects.filter(run_id=OuterRef("pk"), incident__muted_at__isnull=False))),
        )
    }


@admin.register(Run)
class RunPanel(ArrangedPanel, RunButtons):
    """Runs by status, with the reason of those that do not progress."""

    list_display = ("status_label", "agent", "about", "trigger_link", "tried", "created", "took", "used", "reason")
    list_display_links = ("status_label", "agent")
    first_columns = ("status_label", "agent", "about")
    more_columns = ("woken_by", "finished", "queue", "version", "identity")
    list_filter = (
        "status",
        FinishedFilter,
        PlaceFilter,
        AgentFilter,
        StartedFilter,
        LastFilter,
        IncidentFilter,
        MutedFilter,
        ParentFilter,
    )
    search_fields = ("trigger",)  # only shows the search box: see get_search_results
    search_help_text = HELP
    ordering = ("-id",)
    form_fields = SearchForm.base_fields
    actions = ("requeue_chosen", "cancel_chosen")

    class Media:
        js = (forms.Script("console/journal.js", defer=True),)

    own_pages = {
        "entry": "<path:object_id>/entry/",
        "live": "<path:object_id>/live/",
        "compare": "<path:object_id>/compare/",
    }

    # Lists

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        asked = super().get_queryset(request).annotate(has_worker=_has_worker(), is_paused=_is_paused())
        runs: QuerySet[Run] = with_open_waits(asked)
        if not is_list(request):
            return runs
        runs = runs.defer("input", "result", "policy", "fired")
        if self.shows_column(request, "used"):
            runs = with_usage(runs)
        match request.GET.get("status__exact"):
            case RunStatus.CANCELLED:  # the only rare status without an index
                return newest(runs)
            case RunStatus.QUEUED:
                return queued(runs)
            case RunStatus.UNCERTAIN:
                return with_doubts(runs)
        return runs

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        if request.GET.get("status__exact") == RunStatus.UNCERTAIN:
            return (*self.first_columns, "trigger_link", "parked", "doubt", "sent_under")
        return super().get_list_display(request)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        if not search_term:
            return queryset, False
        found = find_runs(search_term.strip(), sees_events=request.user.has_perm(SEES_EVENTS))
        return queryset.filter(pk__in=found), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunList]:
        return RunList

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        listed = super().get_changelist_instance(request)
        subjects = subjects_of(listed.result_list)
        for run in listed.result_list:
            run.subject = subjects.get(run.pk)
        return listed

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = TITLES.get(request.GET.get("status__exact", ""))
        return super().changelist_view(request, {**({"title": title} if title else {}), **(extra_context or {})})

    @column("status", label=STATUS_COLOURS)
    def status_label(self, run: Run) -> str:
        return run.status

    @column("subject", empty_value="–")
    def about(self, run: Run) -> str | None:
        return getattr(run, "subject", None)

    @column("trigger", empty_value="–")
    def trigger_link(self, run: Run) -> str | None:
        return trigger_of(run)

    @column("attempt", empty_value="–")
    def tried(self, run: Run) -> int | None:
        # Counted since the last progress, so it is useful only for a live run.
        return run.attempt or None if run.status in LIVE else None

    created = time_column("created", "created_at")
    finished = time_column("finished", "finished_at")

    @column("woken by")
    def woken_by(self, run: Run) -> SafeString | str:
        return event_link(run.event_ids[-1]) if run.event_ids else "–"

    @column("id")
    def identity(self, run: Run) -> SafeString:
        return run_link(run.pk)

    @column("took", empty_value="–")
    def took(self, run: Run) -> str | None:
        return duration_of(run)

    @column("models", empty_value="–")
    def used(self, run: Run) -> SafeString | None:
        usage = usage_of(run)
        return as_one(spent(usage)) if usage else None

    @column("why")
    def reason(self, run: Run) -> SafeString | str:
        if run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
            return first_line(run.error or run.status_reason)
        return as_one(in_words(run)) if run.status in LIVE else ""

    # Of uncertain ones

    parked = time_column("parked", "parked_at")

    @column("open question")
    def doubt(self, run: Run) -> SafeString | str:
        return as_one(doubt_about(run))

    @column("idempotency key", empty_value="–")
    def sent_under(self, run: Run) -> str | None:
        step = unproved_step_of(run)
        return step.idempotency_key if step else None

    # Actions

    @admin.action(description="Requeue", permissions=["requeue"])
    def requeue_chosen(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        return carry_out_or_ask(self, request, queryset, REQUEUE)

    @admin.action(description="Cancel", permissions=["cancel"])
    def cancel_chosen(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        return carry_out_or_ask(self, request, queryset, CANCEL)

    # One run

    def sections(self, request: HttpRequest, obj: Run) -> list[Section]:
        return sections_of(obj, request)

    def title_of(self, obj: Run) -> str:
        return title_of(obj)

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The sections that change while the run is live; 304 as long as they have not."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return live_answer(request, object_id, self.get_queryset(request), changing_sections_of)

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        run = get_object_or_404(Run, pk=object_id)
        title = f"{title_of(run)}, and its last success"
        return plain_page(self, request, title=title, sections=comparison(run, request), obj=run)

    def entry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """One entry of the run's journal, inside the run's page or on its own page."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        run = get_object_or_404(Run.objects.only("id", "agent", "payload_removed_at"), pk=object_id)
        opened = open_entry(run, request.GET.get("key", ""))
        if opened is None:
            raise Http404("The journal has no such entry.")
        if request.headers.get("HX-Request"):
            fork = fork_url(run, opened, request)
            return TemplateResponse(request, "admin/console/entry.html", {"opened": opened, "fork": fork})
        sections: list[Section] = [Facts(rows=[("Run", run_link(run.pk, run.agent)), *opened.facts])]
        sections += [Text(title=label, text=text) for label, text in opened.texts]
        title = f"{opened.entry.kind.capitalize()} {opened.entry.key}"
        return plain_page(self, request, title=title, sections=sections, obj=run)


def as_one(words: SafeString | str) -> SafeString:
    # On a narrow screen a cell's parts stand side by side.
    return format_html("<span>{}</span>", words)


def _has_worker() -> Exists:
    """Does a live worker serve this run's queue and have its agent's code?"""
    agent: Any = Func(OuterRef("agent"), template="ARRAY[%(expressions)s]", output_field=ArrayField(TextField()))
    queue: Any = Func(OuterRef("queue"), template="ARRAY[%(expressions)s]", output_field=ArrayField(TextField()))
    return Exists(alive().filter(kind="worker", agents__contains=agent, queues__contains=queue))


def _is_paused() -> Exists:
    return Exists(Queue.objects.filter(Q(name=OuterRef("queue")) | Q(name=Queue.EVERY), paused_at__isnull=False))
