from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, JSONField, Min, Prefetch, Q, QuerySet, Sum
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from unfold.dataclasses import UnfoldAction
from unfold.enums import ActionVariant

from config.console.access.audit import entries_of
from config.console.events.decisions import cells_of
from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.html import format_html
from config.console.parts.links import event_link, link, listing, page, run_link
from config.console.parts.moments import distance, moment
from config.console.parts.pages import form_page, plain_page
from config.console.parts.panel import Panel, acting, allowed, button, column
from config.console.parts.previews import wrong_with
from config.console.parts.sections import Facts, Notice, Section, Table, Text, pretty
from config.console.runs.words import duration_of, first_line
from config.console.schedules.words import state_of
from config.console.sources.switches import switch_sections
from config.console.triggers.dialogs import HELD, RESUMED, FireForm, PauseForm, RedispatchForm, ResumeForm, a_day_ago
from config.console.triggers.filter_trial import try_on_recent
from config.console.triggers.filters import LAST_RUN, StateFilter
from config.console.triggers.form import MatchForm, NewTriggerForm, TriggerForm, as_initial, policy_as_initial
from config.console.triggers.message_filter import MessageFilterForm, written
from config.console.triggers.seen_fields import respond
from runs.exceptions import RunError
from runs.models import Run
from triggers.declarations.overrides import create_trigger, override, reset_overrides
from triggers.dispatch.failing_triggers import COUNTED, errors_of
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import offer_errors
from triggers.models import Decision, Gate, Schedule, Source, Trigger, WatchedTable
from triggers.schedules.preview import describe
from triggers.schedules.rows import RELATED, VANISHED
from triggers.sources.manual import fire
from triggers.switches.switch import KINDS as SWITCHES

SHOWN = 20


@admin.register(Trigger)
class TriggerPanel(Panel):
    """Rules that match events to agents."""

    list_display = ("slug", "state", "agent", "woken_by", "overlap", "failures", "last_run", "next_fire")
    list_filter = (StateFilter,)
    search_fields = ("slug", "agent")
    search_help_text = "trigger or agent"
    ordering = ("slug",)
    actions = ("pause_chosen", "resume_and_run", "resume_and_drop", "fire_chosen", "redispatch_errors")
    actions_detail = ("fire_now", "try_filter", "message_filter", "edit", "pause", "resume", "redispatch", "reset")

    def get_urls(self) -> list[URLPattern]:
        # Before the other URLs, which would take these names for a trigger's key.
        own = [("seen/", self.seen_view, "seen"), ("try/", self.try_form_view, "try_form")]
        urls = [
            path(route, self.admin_site.admin_view(view), name=f"triggers_trigger_{name}") for route, view, name in own
        ]
        return [*urls, *super().get_urls()]

    # Lists

    def get_queryset(self, request: HttpRequest) -> QuerySet[Trigger]:
        schedules = Schedule.objects.select_related(*RELATED)
        triggers = super().get_queryset(request).prefetch_related(Prefetch("schedules", schedules))
        last = RawSQL(LAST_RUN, [], output_field=JSONField())  # noqa: S611  (nothing of it comes from outside)
        return triggers.annotate(last=last)  # type: ignore[no-any-return]

    @column("state", label={"active": "success", "paused": "danger", "disabled": "default"})
    def state(self, trigger: Trigger) -> str:
        return trigger.status

    @column("wakes on")
    def woken_by(self, trigger: Trigger) -> str:
        return in_words(trigger)

    @column("failures in a row")
    def failures(self, trigger: Trigger) -> SafeString | str:
        if trigger.is_paused:
            return format_html(
                "{} · paused {}: {}", trigger.failures_in_a_row, moment(trigger.paused_at), trigger.paused_reason
            )
        return str(trigger.failures_in_a_row or "–")

    @column("last run", empty_value="–")
    def last_run(self, trigger: Trigger) -> SafeString | None:
        last = trigger.last  # type: ignore[attr-defined]
        return run_link(last["id"], last["status"]) if last else None

    @column("next fire")
    def next_fire(self, trigger: Trigger) -> SafeString:
        fires = [one.next_fire_at for one in trigger.schedules.all() if one.next_fire_at and one.task.enabled]
        return moment(min(fires, default=None))

    # Permissions

    has_add_permission = allowed("triggers.add_trigger")
    has_edit_permission = allowed("triggers.change_trigger")
    has_try_permission = allowed("triggers.view_event")  # the result of a filter reveals event data

    has_pause_permission = allowed("triggers.pause_trigger")
    has_fire_permission = allowed("triggers.fire_trigger")

    # Making and changing

    def new(self, request: HttpRequest) -> HttpResponse:
        # Pages of sources and events lead here with what the trigger is to listen to.
        asked = {name: request.GET[name] for name in ("source", "types") if name in request.GET}
        initial = {**policy_as_initial({}), "overlap": "allow", **asked}
        form = NewTriggerForm(request.POST or None, initial=initial, offers=self.may_try_own(request))
        if form.is_valid():
            trigger = create_trigger(**form.values(), by=acting(request))
            messages.success(request, f"Trigger {trigger.slug} is ready.")
            return leave(request, page("triggers_trigger", trigger.pk))
        back = listing("triggers_trigger")
        groups = form.groups()
        return form_page(
            self, request, form, title="New trigger", submit="Create the trigger", back=back, groups=groups
        )

    @button("Edit", permissions=["edit"], icon="edit", url_path="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        # `message_filter` leads here with the filter that it has written.
        offered = {"filter": request.GET["filter"]} if "filter" in request.GET else {}
        initial = {**as_initial(trigger), **offered}
        form = TriggerForm(request.POST or None, initial=initial, offers=self.may_try_own(request))
        back = page("triggers_trigger", object_id)
        if form.is_valid():
            changes = {name: value for name, value in form.values().items() if value != getattr(trigger, name)}
            if changes:
                override(trigger, changes, by=acting(request))
            messages.success(request, "Saved." if changes else "Nothing was changed.")
            return leave(request, back)
        groups = form.groups()
        return form_page(
            self, request, form, title="Edit trigger", submit="Save", back=back, groups=groups, obj=trigger
        )

    @button("Try the filter", icon="science", url_path="try", permissions=["view", "try"])
    def try_filter(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Only users who may change the trigger may enter expressions; others try the stored ones."""
        trigger = get_object_or_404(Trigger, pk=object_id)
        title = "Try the filter on recent events"
        stored = {name: getattr(trigger, name) for name in MatchForm().fields}
        if not self.has_edit_permission(request):
            if request.method == "POST":
                raise PermissionDenied
            return plain_page(self, request, title=title, sections=[try_on_recent(stored)], obj=trigger)
        form = MatchForm(request.POST or None, initial=as_initial(trigger), offers=True)
        sections = []
        if not form.is_bound or form.is_valid():
            sections = [try_on_recent(form.cleaned_data if form.is_bound else stored)]
        return form_page(
            self,
            request,
            form,
            title=title,
            submit="Try it",
            back=page("triggers_trigger", object_id),
            groups=form.groups(),
            sections=sections,
            obj=trigger,
        )

    @button("Filter for messages", permissions=["edit"], icon="forum", url_path="messages")
    def message_filter(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Write a filter for messages and try it; the form of the trigger saves it."""
        trigger = get_object_or_404(Trigger, pk=object_id)
        form = MessageFilterForm(request.POST or None)
        sections: list[Section] = []
        if form.is_valid():
            text = form.cleaned_data["filter"]
            sections = written(trigger, text)
            if text and self.may_try_own(request):
                stored = {name: getattr(trigger, name) for name in MatchForm().fields}
                sections.append(try_on_recent({**stored, "filter": text}))
        return form_page(
            self,
            request,
            form,
            title="Write a filter for messages",
            submit="Write it",
            back=page("triggers_trigger", object_id),
            groups=form.groups(),
            choice="kind",
            sections=sections,
            obj=trigger,
        )

    def may_try_own(self, request: HttpRequest) -> bool:
        """Whether the user may evaluate expressions of their own: these read any field of any event."""
        return self.has_try_permission(request) and (
            self.has_edit_permission(request) or self.has_add_permission(request)
        )

    def seen_view(self, request: HttpRequest) -> HttpResponse:
        """The fields of recent events, for a form that is being filled in."""
        if not self.may_try_own(request):
            raise PermissionDenied
        form = MatchForm(request.POST)
        form.is_valid()
        return respond(request, form.cleaned_data.get("source", ""), form.cleaned_data.get("types", []))

    def try_form_view(self, request: HttpRequest) -> HttpResponse:
        """The trial of a form that is being filled in."""
        if not self.may_try_own(request):
            raise PermissionDenied
        form = MatchForm(request.POST)
        shown = {"section": try_on_recent(form.cleaned_data)} if form.is_valid() else {"wrong": wrong_with(form)}
        return TemplateResponse(request, "admin/console/trial_body.html", shown)

    @button(
        "Reset to the code",
        permissions=["edit"],
        icon="undo",
        url_path="reset",
        dialog=dialog("Reset to the code's declaration?", "Discards all changes by operators.", "Reset"),
    )
    def reset(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        act = partial(reset_overrides, trigger, trigger.overrides, by=acting(request))
        done, back = "Reset to the code's declaration.", page("triggers_trigger", object_id)
        return attempt(request, act, done=done, back=back)

    # Control

    @button(
        "Fire now",
        permissions=["fire"],
        icon="play_arrow",
        variant=ActionVariant.PRIMARY,
        url_path="fire",
        dialog=dialog("Fire now?", "Creates an event for this trigger only; its filter is ignored.", "Fire", FireForm),
    )
    def fire_now(self, request: HttpRequest, form: FireForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        try:
            event_id = fire(trigger, data=form.cleaned_data["data"], by=acting(request))
        except RunError as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(request, format_html("Fired: event {}.", event_link(event_id)))
        return leave(request, page("triggers_trigger", object_id))

    @button(
        "Pause",
        permissions=["pause"],
        icon="pause",
        variant=ActionVariant.DANGER,
        url_path="pause",
        dialog=dialog("Pause this trigger?", "Its events are held until it is resumed.", "Pause", PauseForm),
    )
    def pause(self, request: HttpRequest, form: PauseForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        act = partial(pause, trigger, reason=form.cleaned_data["reason"], by=acting(request))
        return attempt(request, act, done="Paused.", back=page("triggers_trigger", object_id))

    @button(
        "Resume",
        permissions=["pause"],
        icon="resume",
        variant=ActionVariant.SUCCESS,
        url_path="resume",
        dialog=dialog("Resume this trigger?", "Its count of failures restarts at zero.", "Resume", ResumeForm),
    )
    def resume(self, request: HttpRequest, form: ResumeForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        act = partial(resume, trigger, held=form.cleaned_data["held"], by=acting(request))
        return attempt(request, act, done=RESUMED, back=page("triggers_trigger", object_id))

    @button(
        "Dispatch again",
        permissions=["replay"],
        icon="replay",
        url_path="redispatch",
        dialog=dialog(
            "Dispatch events with errors again?",
            "Uses the current filter, key and input. An event that already has a run of this trigger starts no second run.",
            "Dispatch again",
            RedispatchForm,
        ),
    )
    def redispatch(self, request: HttpRequest, form: RedispatchForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        since = a_day_ago() if form.cleaned_data["errors"] == "lately" else None
        found = offer_errors(trigger=trigger, since=since, by=acting(request))
        messages.success(request, f"{found} event{pluralize(found)} will be dispatched again, in batches.")
        return leave(request, page("triggers_trigger", object_id))

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[UnfoldAction]:
        trigger = Trigger.objects.filter(pk=object_id).first()
        if trigger is None:
            return []
        hidden = {"pause"} if trigger.is_paused else {"resume"}
        if not trigger.enabled:
            hidden.add("fire_now")
        if not trigger.enabled or not trigger.decisions.filter(outcome=Decision.Outcome.ERROR).exists():
            hidden.add("redispatch")
        if trigger.declared is None or not trigger.overrides:
            hidden.add("reset")
        names = {f"triggers_trigger_{name}" for name in hidden}
        actions = super().get_actions_detail(request, object_id)
        return [one for one in actions if one.action_name not in names]

    @admin.action(description="Pause", permissions=["pause"])
    def pause_chosen(self, request: HttpRequest, queryset: QuerySet[Trigger]) -> None:
        act = partial(pause, reason=f"paused by {acting(request)}")
        done = "paused; their events are held"
        carry_out(request, queryset, act, done=done, legal=Q(paused_at=None), otherwise="already paused")

    @admin.action(description="Resume and run held events", permissions=["pause"])
    def resume_and_run(self, request: HttpRequest, queryset: QuerySet[Trigger]) -> None:
        self._resume(request, queryset, "run")

    @admin.action(description="Resume and drop held events", permissions=["pause"])
    def resume_and_drop(self, request: HttpRequest, queryset: QuerySet[Trigger]) -> None:
        self._resume(request, queryset, "drop")

    def _resume(self, request: HttpRequest, queryset: QuerySet[Trigger], held: Any) -> None:
        act, legal = partial(resume, held=held), Q(paused_at__isnull=False)
        carry_out(request, queryset, act, done="resumed", legal=legal, otherwise="not paused")

    @admin.action(description="Dispatch events with errors again", permissions=["replay"])
    def redispatch_errors(self, request: HttpRequest, queryset: QuerySet[Trigger]) -> None:
        done = "requested; their events with errors are dispatched again, in batches"
        carry_out(request, queryset, lambda trigger, *, by: offer_errors(trigger=trigger, by=by), done=done)

    has_replay_permission = allowed("triggers.replay_event")

    @admin.action(description="Fire now", permissions=["fire"])
    def fire_chosen(self, request: HttpRequest, queryset: QuerySet[Trigger]) -> None:
        carry_out(request, queryset, fire, done="fired", legal=Q(enabled=True), otherwise="disabled")

    # One trigger

    def sections(self, request: HttpRequest, obj: Trigger) -> list[Section]:
        overridden = ", ".join(obj.overrides)
        return [
            _notice(obj),
            Facts(
                rows=[
                    ("Agent", obj.agent),
                    ("Wakes on", in_words(obj)),
                    ("Source", obj.source or "any"),
                    ("Types", ", ".join(obj.types) or "only events that target it"),
                    ("Filter", obj.filter and format_html("<code>{}</code>", obj.filter)),
                    ("Input", format_html("<code>{}</code>", pretty(obj.input)) if obj.input else ""),
                    ("Key", obj.key and format_html("<code>{}</code>", obj.key)),
                    ("Overlap", obj.overlap if obj.key_limit == 1 else f"{obj.overlap}, {obj.key_limit} at once"),
                    ("Tools of LLM calls", "" if obj.tools is None else ", ".join(obj.tools) or "none"),
                    ("Open windows", _collected(obj)),
                    ("Failed runs in a row", obj.failures_in_a_row),
                    ("Gate", _gate(obj)),
                    ("Origin", "the agent’s declaration" if obj.declared is not None else "an operator"),
                    ("Changed by operators, kept at deploys", overridden),
                    ("Runs", link(listing("runs_run", q=obj.slug), "list")),
                ]
            ),
            _schedules(obj),
            *_switch(obj),
            _runs(obj),
            _decisions(obj),
            entries_of("trigger", obj.pk),
            Text(title="Policy values that differ from the defaults", text=pretty(obj.policy), folded=True),
        ]


def in_words(trigger: Trigger) -> str:
    """The events it matches, e.g. “invoice.* from stripe, where event.data.amount > 100”."""
    clocks = [describe(schedule) for schedule in trigger.schedules.all()]
    if not trigger.types:
        return "; ".join(clocks) or "only by hand"
    events = ", ".join("any event" if type_ == "*" else type_ for type_ in trigger.types)
    source = f" from {trigger.source}" if trigger.source else ""
    condition = f", where {trigger.filter}" if trigger.filter else ""
    return "; ".join([f"{events}{source}{condition}", *clocks])


def _notice(trigger: Trigger) -> Notice:
    if not trigger.enabled:
        is_gone = VANISHED in (trigger.declared or {})
        why = "The code no longer declares it; declaring it again enables it." if is_gone else "Enable it under Edit."
        return Notice(text="Disabled: no event matches it, and it cannot be fired.", level="warning", details=[why])
    if trigger.is_paused:
        held = Decision.objects.filter(trigger=trigger, outcome=HELD).count()
        return Notice(
            level="bad",
            text=format_html("Paused {}: {}", moment(trigger.paused_at), trigger.paused_reason),
            details=[f"Held events: {held}. Resume to run or drop them."],
        )
    if unwatched := _unwatched(trigger):
        text = f"Active, but changes of its table may be no events: {unwatched.error}"
        return Notice(text=text, level="bad", details=[unwatched.remedy])
    if errors := errors_of(trigger)[:COUNTED].count():
        more = "at least " if errors == COUNTED else ""
        failing = f"{trigger.failures_in_a_row} failed runs in a row." if trigger.failures_in_a_row else ""
        last = errors_of(trigger).latest("created_at")
        return Notice(
            level="warning",
            text=f"Active, but {more}{errors:,} event{pluralize(errors)} ended in an error in the last day and started no run.",
            details=[
                f"The last error, {distance(last.created_at)}: {last.reason}",
                "Correct the filter, key or input under “Edit”, then use “Dispatch again”.",
                *filter(None, [failing]),
            ],
        )
    if trigger.failures_in_a_row:
        return Notice(
            text=f"Active, but its latest runs failed: {trigger.failures_in_a_row} in a row.", level="warning"
        )
    return Notice(text="Active.", level="good")


def _unwatched(trigger: Trigger) -> WatchedTable | None:
    """The table of its source, if it has not the triggers that it should."""
    if not trigger.source:
        return None
    return WatchedTable.objects.filter(source__slug=trigger.source, source__enabled=True).exclude(error="").first()


def _switch(trigger: Trigger) -> list[Section]:
    """Why it was woken by an absence, or not."""
    source = Source.objects.filter(slug=trigger.source, kind__in=SWITCHES).first() if trigger.source else None
    return switch_sections(source) if source else []


def _schedules(trigger: Trigger) -> Table:
    rows = [
        (link(page("triggers_schedule", one.pk), one.task.name), state_of(one), describe(one), moment(one.next_fire_at))
        for one in trigger.schedules.all()
    ]
    return Table(title="Schedules", headers=("Schedule", "State", "Fires", "Next"), rows=rows, empty="None.")


def _gate(trigger: Trigger) -> str:
    """What the gate of its agent has answered: the counts, and the last answer."""
    gate = Gate.objects.filter(trigger=trigger).first()
    if gate is None:
        return ""
    times = f", {gate.in_a_row:,} times in a row" if gate.in_a_row > 1 else ""
    return format_html(
        "{} quiet, {} fired, {} failed. Last {}: {}{}: {}",
        f"{gate.quiet:,}", f"{gate.fired:,}", f"{gate.failed:,}", moment(gate.last_at), gate.last_answer, times,
        gate.last_reason,
    )  # fmt: skip


def _collected(trigger: Trigger) -> str:
    """Open windows of a debounce or batch: their events, and the time of the next run."""
    windows = trigger.windows.aggregate(count=Count("pk"), events=Sum("event_ids__len"), next=Min("due_at"))
    if not windows["count"]:
        return ""
    return format_html(
        "{} events in {}, the next ends {}", windows["events"], windows["count"], moment(windows["next"])
    )


def _runs(trigger: Trigger) -> Table:
    runs = Run.objects.filter(trigger=trigger.slug).order_by("-id").defer("input", "result", "policy", "fired")[:SHOWN]
    return Table(
        title="Latest runs",
        headers=("Run", "Status", "Attempt", "Created", "Took", "Error"),
        rows=[
            (
                run_link(run.pk),
                run.status,
                run.attempt,
                moment(run.created_at),
                duration_of(run) or "–",
                first_line(run.error),
            )
            for run in runs
        ],
        empty="It has started no runs.",
    )


def _decisions(trigger: Trigger) -> Table:
    # By event id, which is time-ordered and indexed.
    decisions = (
        trigger.decisions.select_related("event__source").defer("event__data", "event__body").order_by("-event_id")
    )
    return Table(
        title="Latest decisions",
        note="Events that started no run, or joined or waited for one.",
        headers=("Event", "Type", "Outcome", "Reason", "Run concerned", "When"),
        rows=[(event_link(one.event_id), one.event.type, *cells_of(one)) for one in decisions[:SHOWN]],
        empty="None.",
    )
