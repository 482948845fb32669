"""Switches: what they wait for, since when, and which of them are down."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.safestring import SafeString

from agents.kernel.durations import in_words
from config.console.parts.dialogs import dialog
from config.console.parts.html import format_html
from config.console.parts.links import event_link, joined, link, page
from config.console.parts.moments import distance, moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.sections import Cell, Facts, Notice, Section, Table
from config.console.parts.service_button import service_button
from runs.db.sql import database_now
from triggers.models import Event, Source, SwitchTimer
from triggers.models import Switch as SwitchRow
from triggers.sources.edit import change_source
from triggers.switches.switch import CLOSED, OPENED, PING, REASONS, Switch, switch_of

TIMERS_SHOWN = EPISODES_SHOWN = 50
UP, LATE, DOWN, NEVER, PAUSED = "up", "late", "down", "never seen", "paused"
COLOURS = {UP: "success", NEVER: "info", LATE: "warning", DOWN: "danger", PAUSED: "default"}
PAUSE = dialog(
    "Pause this switch?",
    "Its source is disabled: nothing opens, and pings are refused. When it is resumed, its time begins again from zero.",
    "Pause it",
)
RESUME = dialog("Resume this switch?", "Its source is enabled, and its time begins now.", "Resume it")


@admin.register(SwitchRow)
class SwitchPanel(Panel):
    """Sources that watch for the absence of events. Each is made, edited and tested on the page of its source."""

    list_display = ("name", "kind", "state", "last", "due", "waits")
    list_filter = ("source__kind", "is_on")
    search_fields = ("source__slug",)
    search_help_text = "switch"
    ordering = ("source__slug",)
    actions_detail = ("pause", "resume")

    last = time_column("last seen", "seen_at")
    due = time_column("next due", "due_at")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return any(request.user.has_perm(f"triggers.{verb}_source") for verb in ("view", "change"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[SwitchRow]:
        rows: QuerySet[SwitchRow] = super().get_queryset(request).select_related("source")
        return rows.annotate(**columns_of_state("source"), source_kind=F("source__kind"))

    @column("switch")
    def name(self, switch: SwitchRow) -> str:
        return switch.source.slug

    @column("kind")
    def kind(self, switch: Any) -> str:
        return str(switch.source_kind)

    @column("state", label=COLOURS)
    def state(self, switch: Any) -> str:
        return state_in_list(switch.source, switch)

    @column("waits for")
    def waits(self, switch: SwitchRow) -> str:
        definition = defined(switch.source)
        return in_short(definition) if definition else "its settings are invalid"

    @service_button("Pause", "triggers.change_source", PAUSE, icon="pause", done="Paused.")
    def pause(self, object_id: str, by: str) -> None:
        _turn(object_id, on=False, by=by)

    @service_button("Resume", "triggers.change_source", RESUME, icon="play_arrow", done="Resumed.")
    def resume(self, object_id: str, by: str) -> None:
        _turn(object_id, on=True, by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        is_on = Source.objects.filter(pk=object_id, enabled=True).exists()
        return {"pause": is_on, "resume": not is_on}

    def sections(self, request: HttpRequest, obj: SwitchRow) -> list[Section]:
        return [*switch_sections(obj.source), _episodes(obj.source)]


def _turn(object_id: str, *, on: bool, by: str) -> None:
    change_source(get_object_or_404(Source, pk=object_id, switch__isnull=False), {"enabled": on}, by=by)


def defined(source: Source) -> Switch | None:
    """The switch's definition; None: its settings make no sense."""
    try:
        return switch_of(source.pk, source.slug, source.kind, source.settings)
    except (ValueError, TypeError, AttributeError):
        return None


def columns_of_state(source: str) -> dict[str, Any]:
    """What `state_in_list` reads of a row whose source this column names."""
    timers = SwitchTimer.objects.filter(source=OuterRef(source))
    only = timers.filter(key="")
    return {
        "is_open": Exists(timers.filter(state="open")),
        "seen_at": Subquery(only.values("seen_at")[:1]),
        "due_at": Subquery(only.values("due_at")[:1]),
        "now": Now(),
    }


def state_in_list(source: Source, row: Any) -> str:
    return state_of(defined(source), source, row.is_open, row.seen_at, row.due_at, now=row.now)


def state_of(
    switch: Switch | None,
    source: Source,
    is_open: bool,
    seen_at: datetime | None,
    due_at: datetime | None,
    *,
    now: datetime,
) -> str:
    if not source.enabled:
        return PAUSED
    if is_open:
        return DOWN
    if switch and due_at and now > due_at - (timedelta() if switch.recurring else switch.grace):
        return LATE
    return UP if seen_at or (switch and switch.has_keys) else NEVER


def in_short(switch: Switch) -> str:
    if switch.is_ping:
        return f"a ping every {in_words(switch.within)}"
    begun = f" of {' '.join(switch.started.types)}" if switch.started else ""
    key = f", by {switch.seen.key}" if switch.seen.key else ""
    if switch.recurring:
        key = f", for each of {', '.join(switch.keys)} ({switch.seen.key})" if switch.keys else ""
        return f"{' '.join(switch.seen.types)} {switch.recurring.words}{key}"
    if switch.deadlines:
        return f"{' '.join(switch.seen.types)}{begun} {switch.deadlines.words.partition(', since ')[0]}{key}"
    return f"{' '.join(switch.seen.types)} within {in_words(switch.within)}{begun}{key}"


def switch_sections(source: Source) -> list[Section]:
    """The sections of the page of a switch and of its source."""
    switch = defined(source)
    row = SwitchRow.objects.filter(source=source).first()
    if switch is None:
        return [Notice(text="Its settings are invalid: it watches nothing. Correct them under Edit.", level="bad")]
    if row is None:
        return [Notice(text="No dispatcher has read it yet; its time begins then.", level="warning")]
    timers = SwitchTimer.objects.filter(source=source)
    only = timers.filter(key="").first() if not switch.has_keys else None
    pages = [link(page("triggers_source", source.pk), "source"), link(page("triggers_switch", source.pk), "switch")]
    rows = [("Waits for", in_short(switch)), *_times(only, switch), *_troubles(row), ("Pages", joined(pages))]
    facts = Facts(title=f"Switch {source.slug}", rows=rows)
    notice = _notice(source, switch, only, timers)
    return [notice, facts, *([] if only else [_keys(timers)])]


def _notice(source: Source, switch: Switch, only: SwitchTimer | None, timers: QuerySet[SwitchTimer]) -> Notice:
    opened, now = timers.filter(state="open").exists(), database_now()
    seen_at, due_at = (only.seen_at, only.due_at) if only else (None, None)
    state = state_of(switch, source, opened, seen_at, due_at, now=now)
    if state == PAUSED:
        return Notice(
            text="Paused: its source is disabled. When it is enabled again, its time begins again from zero.",
            level="warning",
        )
    if state == DOWN and only:
        since = distance(only.opened_at) if only.opened_at else ""
        return Notice(
            text=f"Down, since {since}: {REASONS.get(only.reason, only.reason)}.",
            level="bad",
            details=["The next ping closes it." if source.kind == PING else "It closes when the event returns."],
        )
    if state == DOWN:
        return Notice(
            text="Down for at least one key.", level="bad", details=["Each key closes when its event returns."]
        )
    opens_at = only.look_at if only and switch.recurring else due_at
    if state == LATE and opens_at and opens_at < now:
        return Notice(
            text=f"Due {distance(opens_at)}, and not open yet.",
            level="warning",
            details=[
                "The dispatcher opens it as soon as it has dispatched the events that came before. See Processes if it does not."
            ],
        )
    if state == LATE and opens_at:
        return Notice(text=f"Late: it opens {distance(opens_at)}, unless the event comes before.", level="warning")
    if state == NEVER:
        return Notice(text="The event has never been seen; the time runs nevertheless.")
    return Notice(text="Up.", level="good")


def _times(timer: SwitchTimer | None, switch: Switch) -> list[tuple[str, Cell]]:
    if timer is None:
        return []
    waits = timer.state == SwitchTimer.State.WAITING
    return [
        ("Last seen", _seen(timer)),
        ("Its time runs since", moment(timer.since) if waits else ""),
        ("A /start without its end", moment(timer.began_at) if timer.began_at else ""),
        ("Next due" if waits else "Was due", moment(timer.due_at)),
        ("Next deadline", moment(timer.look_at) if switch.recurring and not waits else ""),
        ("Open since", _opened(timer) if timer.opened_at else ""),
        ("Episodes", timer.episode),
    ]


def _troubles(row: SwitchRow) -> list[tuple[str, Cell]]:
    turned_away = f"{row.turned_away:,} events: there are too many keys. The last came "
    return [
        ("Turned away", format_html("{}{}", turned_away, moment(row.turned_away_at)) if row.turned_away else ""),
        ("Last error", format_html("{}: {}", moment(row.failed_at), row.error) if row.error else ""),
    ]


def _keys(timers: QuerySet[SwitchTimer]) -> Table:
    opened = list(timers.filter(state="open").order_by("-opened_at")[:TIMERS_SHOWN])
    waiting = timers.filter(state="waiting").order_by("due_at")[: TIMERS_SHOWN - len(opened)]
    return Table(
        title="Keys",
        note=f"Those that are down, and those that are due next; {TIMERS_SHOWN} at most.",
        headers=("Key", "State", "Since", "Due", "Last seen"),
        rows=[
            (
                timer.key,
                DOWN if timer.state == "open" else "waiting",
                moment(timer.since),
                moment(timer.due_at),
                _seen(timer),
            )
            for timer in (*opened, *waiting)
        ],
        empty="Nothing is awaited.",
    )


def _episodes(source: Source) -> Table:
    told = Event.objects.filter(source=source, type__in=[OPENED, CLOSED]).defer("body", "headers").order_by("-id")
    return Table(
        title="Episodes",
        note=f"The last {EPISODES_SHOWN} events of this switch.",
        headers=("Event", "When", "Key", "Reason", "Late by"),
        rows=[
            (
                link(page("triggers_event", event.pk), event.type),
                moment(event.received_at),
                event.subject,
                REASONS.get((event.data or {}).get("reason", ""), ""),
                _late((event.data or {}).get("late_by")),
            )
            for event in told[:EPISODES_SHOWN]
        ],
        empty="None within the retention period.",
    )


def _late(seconds: Any) -> str:
    return in_words(timedelta(seconds=seconds)) if isinstance(seconds, (int, float)) else ""


def _seen(timer: SwitchTimer) -> Cell:
    if timer.seen_at is None:
        return "never"
    return joined([moment(timer.seen_at), event_link(timer.seen_id)]) if timer.seen_id else moment(timer.seen_at)


def _opened(timer: SwitchTimer) -> SafeString:
    return joined([moment(timer.opened_at), *([event_link(timer.opened_id)] if timer.opened_id else [])])
