from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, IntegerField, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminSelectMultipleWidget

from agents.kernel.reserved_types import GAP, is_reserved
from config.console.access.audit import entries_of
from config.console.events.attachments import attachments, download
from config.console.events.decisions import cells_of
from config.console.events.search_form import EventList, SearchForm
from config.console.lists.panel import ArrangedPanel
from config.console.parts import fields
from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.filters import ConditionFilter, LinkedFilter
from config.console.parts.html import format_html
from config.console.parts.links import event_link, link, listing, new_trigger_link, page, run_link
from config.console.parts.moments import distance, moment
from config.console.parts.pages import form_page
from config.console.parts.panel import LOOKED_THROUGH, acting, allowed, button, column, newest, time_column
from config.console.parts.payload import payload_of
from config.console.parts.sections import Facts, Notice, Section, Table, Text, pretty
from config.console.runs.causal_tree import causal_tree_of_event
from config.console.runs.failed_children import failed_children
from config.console.runs.find import find_events
from config.console.runs.shadow import ShadowForm, not_wanting, tried
from config.console.runs.words import duration_of, first_line
from config.console.sources.outbound.words import left_to
from runs.actions.event_runs import beside, runs_of_event
from runs.models import NIL, Run
from runs.processes.alive import alive
from runs.states import RunStatus
from triggers.dispatch.shadow import candidates
from triggers.exceptions import PayloadRemoved
from triggers.models import Decision, Event, Redelivery, Redispatch, Source, Trigger
from triggers.replays.replay import replay
from triggers.retention.erasure import Selection, erase, erase_event
from triggers.sources.webhooks.scheme import schemes

SHOWN = 50
TAINTED = "The run that emitted it had seen untrusted data. The runs that it wakes are tainted as well, and stay so."
EXPLAINED = (
    "Runs today's code on the event in a transaction that is rolled back. The journal of the run it started answers external "
    "calls and waits; no service is called."
)
RUNS_STARTED = f"""(
    SELECT count(*) FROM runs_run run
    WHERE run.id {beside("triggers_event.id")} AND run.event_ids @> ARRAY[triggers_event.id]
)"""  # noqa: S608  (our own parts)


def _redeliveries_of() -> QuerySet[Redelivery]:
    return Redelivery.objects.filter(event=OuterRef("pk"))


class StateFilter(ConditionFilter):
    title = "state"
    parameter_name = "state"
    conditions: ClassVar = {
        "undispatched": ("not dispatched yet", Q(dispatched_at=None)),
        "differs": ("redelivered with another body", Q(Exists(_redeliveries_of().filter(differs=True)))),
        "again": ("redelivered", Q(Exists(_redeliveries_of()))),
    }


class HeldFilter(LinkedFilter):
    """The events that a paused trigger holds: by its slug."""

    title = "held by"
    parameter_name = "held"

    def parse(self, text: str) -> str:
        return text

    def label(self, value: str) -> str:
        return f"trigger {value}"

    def narrow(self, rows: QuerySet[Event], value: str) -> QuerySet[Event]:
        held = Decision.objects.filter(trigger__slug=value, outcome=Decision.Outcome.HELD)
        return rows.filter(pk__in=held.values("event"))


class EraseForm(BaseDialogForm):  # type: ignore[misc]
    """The scope of an erasure."""

    what = fields.RadioField(
        initial="event",
        label="Scope",
        choices=[("event", "this event"), ("subject", "every event with its subject")],
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not Event.objects.filter(pk=self.object_id).exclude(subject="").exists():
            self.fields["what"].choices = self.fields["what"].choices[:1]


class ReplayForm(BaseDialogForm):  # type: ignore[misc]
    """The triggers that get the event again."""

    triggers = forms.ModelMultipleChoiceField(
        queryset=Trigger.objects.filter(enabled=True).order_by("slug"),
        required=False,
        widget=UnfoldAdminSelectMultipleWidget(attrs={"size": 8}),
        label="Only these triggers",
        help_text="Choose several with Ctrl or ⌘. None chosen: every trigger that matches now.",
    )


@admin.register(Event)
class EventPanel(ArrangedPanel):
    """Accepted events and their outcomes."""

    list_display = ("type", "source", "subject_shown", "received", "state", "runs_started", "flags")
    list_filter = (StateFilter, HeldFilter, "source")
    first_columns = ("type", "source", "subject_shown")
    more_columns = ("ce_source", "ce_id", "identity")
    list_select_related = ("source",)
    search_fields = ("type",)  # only shows the search box: see get_search_results
    search_help_text = (
        "the beginning of an event's id, an exact subject, or a field of its data such as data.order_id=A-312; or, in the newest "
        f"{LOOKED_THROUGH:,} events, the sender's id or source, or an exact type"
    )
    ordering = ("-id",)
    form_fields = SearchForm.base_fields
    actions = ("replay_chosen",)
    actions_detail = ("replay_event", "shadow_event", "erase_event")
    own_pages = {"attachment": "<uuid:event_id>/attachments/<int:number>/"}

    # Lists

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[EventList]:
        return EventList

    def list_links(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Pages that begin with the events of a search."""
        if not self.has_replay_permission(request):
            return []
        return [(reverse("admin:triggers_replay_add"), "Replay these")]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Event]:
        return (  # type: ignore[no-any-return]
            super()
            .get_queryset(request)
            .defer("data", "body", "headers")
            .annotate(
                started=RawSQL(RUNS_STARTED, [], output_field=IntegerField()),  # noqa: S611  (nothing of it comes from outside)
                was_redelivered=Exists(_redeliveries_of()),
                was_altered=Exists(_redeliveries_of().filter(differs=True)),
            )
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Event], search_term: str
    ) -> tuple[QuerySet[Event], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if found := find_events(term):
            return queryset.filter(pk__in=found), False
        # A sender's delivery id may have the form of an event id: GitHub's are UUIDs.
        said = Q(ce_id=term) | Q(ce_source=term) | Q(type=term)
        return newest(queryset).filter(said), False

    def title_of(self, obj: Event) -> str:
        return f"{obj.type} · {first_line(obj.subject)}" if obj.subject else obj.type

    @column("subject", empty_value="–")
    def subject_shown(self, event: Event) -> str | None:
        return first_line(event.subject) or None

    received = time_column("received", "received_at")

    @column("id")
    def identity(self, event: Event) -> SafeString:
        return event_link(event.pk)

    @column("state", label={"undispatched": "warning", "dispatched": "default"})
    def state(self, event: Event) -> str:
        return "dispatched" if event.dispatched_at else "undispatched"

    @column("runs")
    def runs_started(self, event: Event) -> str:
        return str(event.started)  # type: ignore[attr-defined]

    @column("flags", label={"another body": "danger", "redelivered": "info"}, empty_value="–")
    def flags(self, event: Event) -> str | None:
        if event.was_altered:  # type: ignore[attr-defined]
            return "another body"
        return "redelivered" if event.was_redelivered else None  # type: ignore[attr-defined]

    # Attachments of mail

    def attachment_view(self, request: HttpRequest, event_id: UUID, number: int) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        get_object_or_404(Event.objects.only("pk"), pk=event_id)
        return download(event_id, number)

    # Actions

    has_replay_permission = allowed("triggers.replay_event")

    @admin.action(description="Replay to every matching trigger", permissions=["replay"])
    def replay_chosen(self, request: HttpRequest, queryset: QuerySet[Event]) -> None:
        carry_out(request, queryset.order_by("seq"), replay, done="replayed")  # in order of arrival

    @button(
        "Replay",
        permissions=["triggers.replay_event"],
        icon="replay",
        variant="primary",
        dialog=dialog(
            "Replay this event?",
            "Dispatches it again and starts new runs, even if it has run before.",
            "Replay",
            ReplayForm,
        ),
    )
    def replay_event(self, request: HttpRequest, form: ReplayForm, object_id: str) -> HttpResponse:
        event = get_object_or_404(Event.objects.defer("data", "body"), pk=object_id)
        back = page("triggers_event", object_id)
        for trigger in form.cleaned_data["triggers"] or [None]:
            to = f" to {trigger}" if trigger else ""
            again = partial(replay, event, trigger=trigger, by=acting(request))
            response = attempt(request, again, done=f"Replayed{to}.", back=back)
        return response

    @button("Shadow run", permissions=["triggers.replay_event"], icon="science", url_path="shadow")
    def shadow_event(self, request: HttpRequest, object_id: str) -> HttpResponse:
        event = get_object_or_404(Event.objects.select_related("source"), pk=object_id)
        back = page("triggers_event", object_id)
        try:
            wanting = candidates(event)
        except PayloadRemoved as gone:
            messages.error(request, str(gone))
            return leave(request, back)
        initial = {"trigger": request.GET.get("trigger", ""), "run": request.GET.get("run", "")}
        form = ShadowForm(wanting, request.POST or None, initial=initial)
        told = tried(request, event, form) if form.is_valid() else [Notice(text=EXPLAINED)]
        return form_page(
            self,
            request,
            form,
            title="Shadow run: what would it do today?",
            submit="Try",
            back=back,
            sections=[*told, *not_wanting(wanting)],
            obj=event,
        )

    @button(
        "Erase",
        permissions=["triggers.erase_event"],
        icon="delete_forever",
        variant="danger",
        dialog=dialog(
            "Erase its payload for good?",
            "Deletes its data, body, headers and subject; inputs, results and texts of its runs; and the payloads of the "
            "events they emitted. Ids and times are kept. This cannot be undone.",
            "Erase",
            EraseForm,
        ),
    )
    def erase_event(self, request: HttpRequest, form: EraseForm, object_id: str) -> HttpResponse:
        event = get_object_or_404(Event.objects.defer("data", "body"), pk=object_id)
        if form.cleaned_data["what"] == "subject":
            erasure = erase(Selection(subject=event.subject), by=acting(request))
        else:
            erasure = erase_event(event, by=acting(request))
        meetings = f", and {erasure.meetings:,} of what calendars have recorded" if erasure.meetings else ""
        erased = f"{_number(erasure.events, 'event')} and {_number(erasure.runs, 'run')}"
        messages.success(request, f"Erased: {erased}{meetings}.")
        if erasure.left:
            left = ", ".join(str(one.event_id) for one in erasure.left[:5])
            messages.warning(
                request, f"Not erased, because still in use: {left} ({len(erasure.left)} in total). Try again later."
            )
        return leave(request, page("triggers_event", object_id))

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        is_gone = Event.objects.filter(pk=object_id, payload_removed_at__isnull=False).exists()
        return {"replay_event": not is_gone, "shadow_event": not is_gone}

    # One event

    def sections(self, request: HttpRequest, obj: Event) -> list[Section]:
        started = runs_of_event(obj.pk)
        runs = list(started.defer("input", "result", "fired").order_by("id")[:SHOWN])
        count, failed = _counts(started, runs)
        decisions = list(obj.decisions.select_related("trigger").order_by("id")[:SHOWN])
        redeliveries = list(obj.redeliveries.order_by("-last_at")[:SHOWN])
        may_add = request.user.has_perm("triggers.add_trigger")
        source = Source.objects.filter(pk=obj.source_id).first()  # None: it was deleted while the event was recorded
        sections: list[Section] = [_notice(obj, source, count, failed, decisions, may_add)]
        sections += failed_children([run.pk for run in runs])
        if any(redelivery.differs for redelivery in redeliveries):
            sections.append(
                Notice(
                    level="warning",
                    text="The event was delivered again with another body. The first body is kept.",
                    details=["This is a bug of the sender, or an attempt to change the event."],
                )
            )
        sections += _same_body(obj, source)
        sections += [
            _facts(obj, source),
            payload_of(obj),
            *attachments(obj),
            _runs(obj, runs, count),
            _decisions(obj, decisions, runs),
        ]
        sections += [causal_tree_of_event(obj), *left_to(obj)]
        sections += [_replays(obj), *_redeliveries(redeliveries), entries_of("event", obj.pk)]
        if obj.headers:
            sections.append(Text(title="Headers, without secrets", text=pretty(obj.headers), folded=True))
        return sections


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{pluralize(count)}"


def _counts(started: QuerySet[Run], shown: list[Run]) -> tuple[int, int]:
    """How many runs the event has started, and how many of them have failed."""
    if len(shown) < SHOWN:
        return len(shown), sum(run.status == RunStatus.FAILED for run in shown)
    return started.count(), started.filter(status=RunStatus.FAILED).count()


def _notice(
    event: Event, source: Source | None, runs: int, failed: int, decisions: list[Decision], may_add: bool
) -> Notice:
    """`runs`: that it has started, of which so many have `failed`. `may_add`: whether the user may add a trigger."""
    if event.dispatched_at is None:
        details = (
            []
            if alive().filter(kind="dispatcher").exists()
            else ["No dispatcher is alive: start `manage.py dispatcher`."]
        )
        return Notice(
            level="bad" if details else "warning",
            text=f"Received {distance(event.received_at)} and not dispatched yet.",
            details=details,
        )
    if runs:
        outcome = f", {failed} failed" if failed else ""
        return Notice(level="bad" if failed else "good", text=f"Started {_number(runs, 'run')}{outcome}.")
    if decisions:
        return Notice(text="Started no run: see the decisions below for the reason.")
    if event.has_lost_its_target:
        return Notice(
            level="warning",
            text="Started no run: its target trigger has been deleted.",
            details=["If the trigger made a decision on it, the decision was deleted with the trigger."],
        )
    links = []
    if may_add and source and event.target_id is None and (event.type == GAP or not is_reserved(event.type)):
        links.append(new_trigger_link(source.slug, [event.type], "Add a trigger for events like this"))
    return Notice(
        text="No trigger matched it, so nothing ran. “Try the filter” on a trigger's page shows why it did not match.",
        details=links,
    )


def earlier_with_the_body_of(event: Event) -> QuerySet[Event]:
    """Earlier events of its source with the same body, latest first."""
    same = Event.objects.filter(source=event.source_id, body_sha256=event.body_sha256, seq__lt=event.seq)
    # In the order of the index.
    return same.filter(dispatched_at__isnull=False).exclude(body_sha256="").order_by("-seq")


def _same_body(event: Event, source: Source | None) -> list[Section]:
    scheme = source and schemes().get(source.kind)
    if not source or not scheme or not scheme.leaves_id_unsigned(scheme.clean_settings(source.settings)):
        return []
    earlier = earlier_with_the_body_of(event).only("id", "received_at").first()
    if earlier is None:
        return []
    came = distance(earlier.received_at)
    return [
        Notice(
            level="warning",
            text=format_html("The same body came {} with another id: {}.", came, event_link(earlier.pk)),
            details=[
                "This source signs the body but not the id. Two genuine deliveries may have equal bodies, "
                "but a leaked delivery can also be sent again in this way."
            ],
        )
    ]


def _facts(event: Event, source: Source | None) -> Facts:
    return Facts(
        rows=[
            ("Event", event.pk),
            ("Type", event.type),
            (
                "Source",
                link(page("triggers_source", source.pk), source.slug) if source else f"{event.source_id} (deleted)",
            ),
            ("Sender's source", event.ce_source),
            ("Sender's id", event.ce_id),
            ("Subject", event.subject),
            ("Time at the sender", event.time and moment(event.time)),
            ("Received", moment(event.received_at)),
            ("Dispatched", event.dispatched_at and moment(event.dispatched_at)),
            ("Payload removed", event.payload_removed_at and moment(event.payload_removed_at)),
            ("Target trigger", _target(event)),
            ("Caused by event", event.cause_event_id and event_link(event.cause_event_id)),
            ("Caused by run", event.cause_run_id and run_link(event.cause_run_id)),
            ("First event of the chain", event_link(event.root_id) if event.depth else ""),
            ("Depth in the chain", event.depth or ""),
            ("Tainted", TAINTED if event.is_tainted else ""),
            ("SHA-256 of the body", event.body_sha256 and format_html("<code>{}</code>", event.body_sha256)),
        ]
    )


def _target(event: Event) -> Any:
    if event.has_lost_its_target:
        return f"{event.target_id} (deleted)"
    return event.target_id and link(page("triggers_trigger", event.target_id), "this one only")


def _runs(event: Event, runs: list[Run], count: int) -> Table:
    return Table(
        title="Runs",
        headers=("Run", "Agent", "Trigger", "Status", "Created", "Took", "Error"),
        rows=[
            (
                run_link(run.pk),
                run.agent,
                run.trigger,
                run.status + (" (replay)" if str(run.replay_id) != NIL else ""),
                moment(run.created_at),
                duration_of(run) or "–",
                first_line(run.error),
            )
            for run in runs
        ],
        empty="No runs.",
        note=link(listing("runs_run", q=str(event.pk)), f"All {count:,}; here are the first {SHOWN}")
        if count > len(runs)
        else "",
        is_cards=True,
    )


def _decisions(event: Event, decisions: list[Decision], runs: list[Run]) -> Table:
    if runs:
        none = "None: every trigger that matched it started a run."
    elif event.has_lost_its_target:
        none = "None: its target trigger has been deleted."
    else:
        none = "None: no trigger matched it."
    return Table(
        title="Decisions: why it started no run of its own, or started it later",
        headers=("Trigger", "Outcome", "Reason", "Run concerned", "When"),
        rows=[(link(page("triggers_trigger", one.trigger_id), one.trigger.slug), *cells_of(one)) for one in decisions],
        empty=none,
        note=f"The first {SHOWN}." if len(decisions) == SHOWN else "",
    )


def _replays(event: Event) -> Table:
    asked: list[Any] = list(Redispatch.objects.filter(event=event).select_related("trigger").order_by("-id")[:SHOWN])
    return Table(
        title="Replays",
        headers=("Requested", "By", "To", "Dispatched"),
        rows=[
            (
                moment(one.created_at),
                one.by,
                one.trigger.slug if one.trigger else "every matching trigger",
                moment(one.dispatched_at),
            )
            for one in asked
        ],
        empty="No replays.",
        note=f"The latest {SHOWN}." if len(asked) == SHOWN else "",
    )


def _redeliveries(redeliveries: list[Redelivery]) -> list[Section]:
    if not redeliveries:
        return []
    rows = [
        (one.count, "another body" if one.differs else "same body", moment(one.last_at), one.body_sha256[:16])
        for one in redeliveries
    ]
    note = f"The latest {SHOWN}." if len(redeliveries) == SHOWN else ""
    return [Table(title="Redeliveries", headers=("Times", "Body", "Last", "SHA-256"), rows=rows, empty="", note=note)]
