"""The page of one agent: what it is, what wakes it, what its runs came to, what it spends and remembers, and its buttons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Count, Prefetch, Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kernel.durations import in_words as span
from agents.models import Checklist, MemoryNote, PromptAgent, Session, SessionTurn
from config.console.access.audit import entries_of
from config.console.agents.declaration import declaration_of, overrides_of
from config.console.agents.figures import (
    LAST,
    MOST_OF_ONE,
    STRIP,
    PastRun,
    Slot,
    durations,
    over_time,
    past_runs,
    versions_of,
)
from config.console.agents.list import called, docstring_of, since, strip_of
from config.console.operations.upcoming import wakes_of
from config.console.parts.html import coded, format_html
from config.console.parts.inboxes import open_incidents
from config.console.parts.links import link, listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.sections import Door, Doors, Facts, Notice, Section, Table, Text
from config.console.runs.words import first_line, took
from config.console.triggers.words import in_words as wakes_in_words
from runs.actions.stop_agents import AgentState
from runs.budgets.room import amount_in_words
from runs.budgets.spending import Spent, spent_today
from runs.models import Incident
from runs.queues.names import spelled
from triggers.models import Gate, Schedule, Trigger
from triggers.schedules.rows import RELATED

SHOWN = 10  # notes, sessions, wakes


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of runs that failed, over time, as bars and as a table."""

    template: ClassVar[str] = "admin/console/share.html"
    slots: Sequence[Slot]
    last: datetime
    text: str

    @property
    def bars(self) -> list[tuple[int, Slot]]:
        """The height of each bar in percent; that of a part without a failure is seen as well."""
        return [(max(round(100 * one.failed / one.ended), 4) if one.ended else 0, one) for one in self.slots]


def sections_of(agent: AgentState, all_stopped: AgentState, request: HttpRequest) -> list[Section]:
    """Each part is for those who may see its rows on their own pages."""
    triggers = _triggers(agent.name)
    sees_runs = _may(request, "runs.run")
    runs = past_runs(agent.name, [one.slug for one in triggers]) if sees_runs else []
    incident = _incident(agent.name) if _may(request, "runs.incident") else None
    sections: list[Section] = [
        _notice(agent, all_stopped, triggers, incident),
        Doors(doors=list(_doors(agent, triggers, runs, request))),
        *_docstring(agent.name),
        _facts(agent, runs),
    ]
    if _may(request, "triggers.trigger"):
        sections += [_wakes(triggers, request), *overrides_of(triggers)]
    if sees_runs:
        sections += [*_share(runs), _versions(runs)]
    if _may(request, "runs.budget"):
        sections.append(_spent([one for one in spent_today() if one.agent == agent.name]))
    if _may(request, "triggers.schedule"):
        sections.append(wakes_of(request, agent.name, SHOWN))
    if _may(request, "agents.checklist"):
        sections.append(_checklists(agent.name))
    if _may(request, "agents.memorynote"):
        sections.append(_memory(agent.name))
    if _may(request, "agents.session"):
        sections.append(_sessions(runs))
    if sees_runs:
        sections.append(_runs(runs))
    return [*sections, declaration_of(agent.name), entries_of("agentstop", agent.name)]


def _may(request: HttpRequest, model: str) -> bool:
    app, _, name = model.partition(".")
    return any(request.user.has_perm(f"{app}.{verb}_{name}") for verb in ("view", "change"))


def _triggers(agent: str) -> list[Trigger]:
    schedules = Prefetch("schedules", Schedule.objects.select_related(*RELATED))
    found = Trigger.objects.filter(agent=agent).order_by("-enabled", "slug").prefetch_related(schedules)
    return list(found[:MOST_OF_ONE])


# What it is, and its buttons


def _incident(name: str) -> Incident | None:
    return open_incidents().filter(agent=name).order_by("-id").first()


def _notice(
    agent: AgentState, everything: AgentState, triggers: Sequence[Trigger], incident: Incident | None
) -> Notice:
    failing = (
        [format_html("It fails: {}", link(page("runs_incident", incident.pk), incident.cause))] if incident else []
    )
    for one in (agent, everything):
        if one.is_stopped:
            return Notice(text=since(one), level="bad", details=["None of its runs starts.", *failing])
    if paused := [one.slug for one in triggers if one.is_paused]:
        held = f"On, but paused: {', '.join(paused)}. The events are held."
        return Notice(text=held, level="bad", details=failing)
    running = f", {agent.running:,} running" if agent.running else ""
    if incident:
        return Notice(text=f"Failing{running}.", level="bad", details=failing)
    return Notice(text=f"On{running}.", level="good")


def _doors(
    agent: AgentState, triggers: Sequence[Trigger], runs: Sequence[PastRun], request: HttpRequest
) -> Iterator[Door]:
    may = request.user.has_perm
    if may("runs.stop_agent"):
        action, label = ("start", "Start") if agent.is_stopped else ("stop", "Stop")
        yield Door(
            label=label, url=reverse(f"admin:runs_agentstop_{action}", args=[spelled(agent.name)]), about=called(agent)
        )
    if len(triggers) == 1:
        yield from _doors_of(triggers[0], request)
    failed = next((one for one in runs if one.status == "failed" and one.trigger), None)
    if failed and may("triggers.replay_event"):
        yield Door(label="Shadow the last failed event", url=reverse("admin:runs_run_shadow_run", args=[failed.id]))
    prompt = PromptAgent.objects.filter(name=agent.name).first()
    if prompt and _may(request, "agents.promptagent"):
        yield Door(label="Edit its prompt and tools", url=page("agents_promptagent", prompt.pk))


def _doors_of(trigger: Trigger, request: HttpRequest) -> Iterator[Door]:
    may = request.user.has_perm
    if trigger.enabled and may("triggers.fire_trigger"):
        yield _dialog("Fire", "fire_now", trigger)
    if may("triggers.pause_trigger"):
        yield _dialog("Resume", "resume", trigger) if trigger.is_paused else _dialog("Pause", "pause", trigger)


def _dialog(label: str, name: str, trigger: Trigger) -> Door:
    url = reverse(f"admin:triggers_trigger_{name}", args=[trigger.pk])
    return Door(label=label, url=url, about=f"trigger {trigger.slug}", is_dialog=True)


def _docstring(name: str) -> list[Section]:
    text = docstring_of(name)
    return [Text(title="What it does", text=coded(text))] if text else []


def _facts(agent: AgentState, runs: Sequence[PastRun]) -> Facts:
    lasted = durations(runs)
    last = [one for one in runs[:LAST] if one.has_ended]
    failed = sum(one.status == "failed" for one in last)
    return Facts(
        title="Its last runs",
        rows=[
            ("The last of them", strip_of([one.status for one in reversed(runs[:STRIP])]) if runs else ""),
            ("Failed", f"{failed} of {len(last)} ({failed / len(last):.0%})" if last else ""),
            ("From start to end, p50", lasted and span(lasted[0])),
            ("From start to end, p95", lasted and span(lasted[1])),
            ("Gate", _gate(agent.name)),
            ("All runs", link(listing("runs_run", agent=agent.name), "list")),
        ],
    )


def _gate(name: str) -> str:
    gates = Gate.objects.filter(agent=name).values_list("quiet", "fired", "failed")
    quiet, fired, failed = (sum(counts) for counts in zip(*gates, strict=True)) if gates else (0, 0, 0)
    return f"{quiet:,} quiet, {fired:,} fired, {failed:,} failed" if gates else ""


# What wakes it


def _wakes(triggers: Sequence[Trigger], request: HttpRequest) -> Table:
    return Table(
        title="What wakes it",
        headers=("Trigger", "State", "Wakes on", "Next fire", "Origin", ""),
        rows=[
            (
                link(page("triggers_trigger", one.pk), one.slug),
                one.status,
                wakes_in_words(one),
                moment(
                    min(
                        (s.next_fire_at for s in one.schedules.all() if s.next_fire_at and s.task.enabled), default=None
                    )
                ),
                "its code" if one.declared is not None else "an operator",
                _buttons(one, request) if len(triggers) > 1 else "",
            )
            for one in triggers
        ],
        empty="Nothing by itself: no trigger names it.",
        note=f"The first {MOST_OF_ONE}." if len(triggers) == MOST_OF_ONE else "",
        is_cards=True,
    )


def _buttons(trigger: Trigger, request: HttpRequest) -> SafeString:
    return Doors(doors=list(_doors_of(trigger, request))).rendered


# Its runs


def _share(runs: Sequence[PastRun]) -> list[Section]:
    slots = over_time(runs)
    if not slots:
        return []
    ended, failed = sum(one.ended for one in slots), sum(one.failed for one in slots)
    worst = max(slots, key=lambda one: one.failed / one.ended if one.ended else 0)
    text = f"{failed:,} of {ended:,} runs failed" + (f"; at worst {worst.failed} of {worst.ended}." if failed else ".")
    return [Share(slots=slots, last=max(one.created_at for one in runs if one.has_ended), text=text)]


def _runs(runs: Sequence[PastRun]) -> Table:
    return Table(
        title=f"The last {LAST} runs" if len(runs) > LAST else "Its runs",
        headers=("Run", "Status", "Trigger", "Created", "Took", "Version", "Error"),
        rows=[
            (
                run_link(one.id),
                one.status,
                one.trigger or "spawned",
                moment(one.created_at),
                took(one.started_at, one.finished_at) if one.started_at and one.finished_at else "–",
                one.version or "–",
                first_line(one.error or (one.status_reason if one.status in ("failed", "uncertain") else "")),
            )
            for one in runs[:LAST]
        ],
        empty="None yet.",
        is_cards=True,
    )


def _versions(runs: Sequence[PastRun]) -> Table:
    return Table(
        title="Versions seen",
        headers=("Version", "Runs", "Failed", "First run", "Last run"),
        rows=[
            (one.name, f"{one.runs:,}", f"{one.failed:,}", moment(one.first_at), moment(one.last_at))
            for one in versions_of(runs)[:SHOWN]
        ],
        empty="None: no run has begun.",
        note=f"Of its last {len(runs):,} runs." if runs else "",
        is_cards=True,
    )


# What it spends and remembers


def _spent(spent: Sequence[Spent]) -> Table:
    return Table(
        title="Spent today",
        headers=("Model", "Trigger", "Requests", "Tokens", "Spent"),
        rows=[
            (
                one.model or "–",
                one.trigger or "–",
                f"{one.requests:,}",
                f"{one.input_tokens + one.output_tokens:,}",
                amount_in_words("usd", one.usd) + (f", {one.unpriced:,} of unknown price" if one.unpriced else ""),
            )
            for one in spent
        ],
        empty="It has called no model since midnight UTC.",
        is_cards=True,
    )


def _checklists(name: str) -> Table:
    failing = Count("items", filter=Q(items__failures_in_a_row__gt=0))
    found = Checklist.objects.filter(agent=name).annotate(item_count=Count("items"), failing_count=failing)
    first = list(found.order_by("trigger")[:SHOWN])
    return Table(
        title="Checklists",
        headers=("Checklist", "Items", "Failing", "Silenced until"),
        rows=[
            (link(page("agents_checklist", one.pk), one), one.item_count, one.failing_count, moment(one.silenced_until))
            for one in first
        ],
        empty="None.",
        note=f"The first {SHOWN}." if len(first) == SHOWN else "",
        is_cards=True,
    )


def _memory(name: str) -> Table:
    notes = list(MemoryNote.objects.filter(agent=name).defer("words").order_by("-updated_at")[: SHOWN + 1])
    return Table(
        title="Memory",
        headers=("Note", "Text", "Written"),
        rows=[
            (link(page("agents_memorynote", one.pk), one.key), first_line(one.text), moment(one.updated_at))
            for one in notes[:SHOWN]
        ],
        empty="None.",
        note=link(listing("agents_memorynote", agent=name), "All of its notes") if len(notes) > SHOWN else "",
        is_cards=True,
    )


def _sessions(runs: Sequence[PastRun]) -> Table:
    """Those of its last runs: by their turns, which an index finds by run."""
    turns = SessionTurn.objects.filter(run_id__in=[one.id for one in runs[:LAST]])
    found = list(Session.objects.filter(pk__in=turns.values("session")).order_by("-used_at")[:SHOWN])
    rows: list[tuple[Any, ...]] = [
        (link(page("agents_session", one.pk), one.name), moment(one.used_at)) for one in found
    ]
    return Table(
        title="Sessions of its last runs",
        headers=("Session", "Last used"),
        rows=rows,
        empty="None.",
        note=f"The latest {SHOWN}." if len(found) == SHOWN else "",
        is_cards=True,
    )
