"""The list of triggers, and what is done with those that are chosen."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import JSONField, Prefetch, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.parts.bulk import carry_out
from config.console.parts.html import format_html
from config.console.parts.links import run_link
from config.console.parts.moments import moment
from config.console.parts.panel import acting, column
from config.console.parts.sections import Section
from config.console.triggers.buttons import TriggerButtons
from config.console.triggers.filters import LAST_RUN, StateFilter
from config.console.triggers.form_pages import TriggerFormPages
from config.console.triggers.page import sections_of
from config.console.triggers.words import in_words
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import offer_errors
from triggers.models import Schedule, Trigger
from triggers.schedules.rows import RELATED
from triggers.sources.manual import fire


@admin.register(Trigger)
class TriggerPanel(TriggerFormPages, TriggerButtons):
    """Rules that match events to agents."""

    list_display = ("slug", "state", "agent", "woken_by", "overlap_policy", "failures", "last_run", "next_fire")
    list_filter = (StateFilter,)
    search_fields = ("slug", "agent")
    search_help_text = "trigger or agent"
    ordering = ("slug",)
    actions = ("pause_chosen", "resume_and_run", "resume_and_drop", "fire_chosen", "redispatch_errors")
    actions_detail = ("fire_now", "try_filter", "message_filter", "edit", "pause", "resume", "redispatch", "reset")

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

    @column("overlap")
    def overlap_policy(self, trigger: Trigger) -> str:
        return trigger.overlap

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

    # Actions

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

    @admin.action(description="Fire now", permissions=["fire"])
    def fire_chosen(self, request: HttpRequest, queryset: QuerySet[Trigger]) -> None:
        carry_out(request, queryset, fire, done="fired", legal=Q(enabled=True), otherwise="disabled")

    # One trigger

    def sections(self, request: HttpRequest, obj: Trigger) -> list[Section]:
        return sections_of(obj)
