"""The page of one trigger."""

from django.db.models import Count, Min, Sum
from django.template.defaultfilters import pluralize
from django.utils.safestring import SafeString

from config.console.access.audit import entries_of
from config.console.events.decisions import cells_of
from config.console.parts.html import format_html
from config.console.parts.links import agent_link, event_link, link, listing, page, run_link
from config.console.parts.moments import distance, moment
from config.console.parts.report_lines import as_lines
from config.console.parts.sections import Facts, Notice, Section, Table, Text, pretty
from config.console.runs.words import duration_of, first_line
from config.console.schedules.words import state_of
from config.console.sources.switches import switch_sections
from config.console.triggers.dialogs import HELD
from config.console.triggers.words import in_words
from runs.actions.select import select_runs
from runs.models.policy import REPORTS
from runs.states import LIVE
from triggers.dispatch.failing_triggers import COUNTED, errors_of
from triggers.models import Decision, Gate, Source, Trigger, WatchedTable
from triggers.schedules.preview import describe
from triggers.schedules.rows import VANISHED
from triggers.switches.switch import KINDS as SWITCHES

SHOWN = 20


def sections_of(trigger: Trigger) -> list[Section]:
    overridden = ", ".join(trigger.overrides)
    return [
        _notice(trigger),
        Facts(
            rows=[
                ("Agent", agent_link(trigger.agent)),
                ("Wakes on", in_words(trigger)),
                ("Source", _source(trigger)),
                ("Types", ", ".join(trigger.types) or "only events that target it"),
                ("Filter", trigger.filter and format_html("<code>{}</code>", trigger.filter)),
                ("Input", format_html("<code>{}</code>", pretty(trigger.input)) if trigger.input else ""),
                ("Key", trigger.key and format_html("<code>{}</code>", trigger.key)),
                (
                    "Overlap",
                    trigger.overlap if trigger.key_limit == 1 else f"{trigger.overlap}, {trigger.key_limit} at once",
                ),
                ("Tools of LLM calls", "" if trigger.tools is None else ", ".join(trigger.tools) or "none"),
                ("Reports", as_lines(trigger.policy.get(REPORTS) or []).replace("\n", " · ")),
                ("Open windows", _collected(trigger)),
                ("Failed runs in a row", trigger.failures_in_a_row),
                ("Gate", _gate(trigger)),
                ("Origin", "the agent’s declaration" if trigger.declared is not None else "an operator"),
                ("Changed by operators, kept at deploys", overridden),
                ("Runs", link(listing("runs_run", q=trigger.slug), "list")),
            ]
        ),
        _schedules(trigger),
        *_switch(trigger),
        _runs(trigger),
        _decisions(trigger),
        entries_of("trigger", trigger.pk),
        Text(title="Policy values that differ from the defaults", text=pretty(trigger.policy), folded=True),
    ]


def _source(trigger: Trigger) -> SafeString | str:
    source = Source.objects.filter(slug=trigger.source).only("id", "slug").first() if trigger.source else None
    return link(page("triggers_source", source.pk), source.slug) if source else trigger.source or "any"


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
    newest = select_runs(trigger=trigger.slug).order_by("-id")
    runs = newest.defer("input", "result", "policy", "fired")[:SHOWN]
    return Table(
        title="Latest runs",
        headers=("Run", "Status", "Attempt", "Created", "Took", "Error"),
        rows=[
            (
                run_link(run.pk),
                run.status,
                (run.attempt if run.status in LIVE else None) or "–",
                moment(run.created_at),
                duration_of(run) or "–",
                first_line(run.error),
            )
            for run in runs
        ],
        empty="It has started no runs.",
        is_cards=True,
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
