"""The list of agents: those in code and prompt agents, with their state, and what their last runs came to."""

import inspect
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from textwrap import shorten

from django.http import HttpRequest
from django.urls import reverse
from django.utils import html
from django.utils.safestring import SafeString

from agents import registry
from agents.kernel.durations import in_words as span
from agents.models import PromptAgent
from config.console.agents.figures import LAST, MOST, STRIP, Figures, figures_of_agents, next_wakes
from config.console.parts.html import coded, format_html, unbroken
from config.console.parts.inboxes import open_incidents
from config.console.parts.links import joined, link, listing, page
from config.console.parts.moments import moment
from config.console.parts.sections import Table
from runs.actions.stop_agents import EVERY, AgentState, in_words
from runs.budgets.room import amount_in_words
from runs.budgets.spending import spent_today
from runs.models import Incident
from runs.queues.names import spelled
from triggers.models import Trigger


@dataclass(frozen=True, kw_only=True)
class Around:
    """What is known of all agents, each read once, by agent."""

    figures: Mapping[str, Figures]
    paused: Mapping[str, Sequence[Trigger]]
    incidents: Mapping[str, Sequence[Incident]]
    prompts: Mapping[str, PromptAgent]
    spent: Mapping[str, Decimal]
    wakes: Mapping[str, datetime]


def table_of_agents(everything: AgentState, agents: Sequence[AgentState], request: HttpRequest) -> Table:
    known = around()
    in_trouble = {
        one.name for one in agents if one.is_stopped or one.name in known.paused or one.name in known.incidents
    }
    agents = sorted(agents, key=lambda one: (one.name not in in_trouble, one.name))
    return Table(
        title=f"{len(agents):,} agents, {len(in_trouble):,} of them failing, paused or stopped",
        headers=("Agent", "State", "Last runs", "Failed", "p95", "Spent today", "Last run", "Next wake", ""),
        rows=[
            ("all agents", state_of(everything), "", "", "", "", "", "", stop_button(everything, request)),
            *[_row(one, known, everything.is_stopped, request) for one in agents],
        ],
        empty="",
        note=f"Failures and the 95th percentile of the time from start to end are of the last {LAST} runs, or fewer. "
        "A stopped agent's events become runs that wait.",
        is_cards=True,
    )


def around() -> Around:
    paused: dict[str, list[Trigger]] = defaultdict(list)
    for trigger in Trigger.objects.filter(enabled=True, paused_at__isnull=False).order_by("slug")[:MOST]:
        paused[trigger.agent].append(trigger)
    incidents: dict[str, list[Incident]] = defaultdict(list)
    for incident in open_incidents().order_by("-id")[:MOST]:
        incidents[incident.agent].append(incident)
    spent: dict[str, Decimal] = defaultdict(Decimal)
    for one in spent_today():
        spent[one.agent] += one.usd
    return Around(
        figures=figures_of_agents(),
        paused=paused,
        incidents=incidents,
        prompts={one.name: one for one in PromptAgent.objects.filter(deleted_at=None)[:MOST]},
        spent=spent,
        wakes=next_wakes(),
    )


def _row(agent: AgentState, known: Around, all_stopped: bool, request: HttpRequest) -> Sequence[object]:
    figures = known.figures.get(agent.name, Figures(agent=agent.name))
    paused, incidents = known.paused.get(agent.name, ()), known.incidents.get(agent.name, ())
    return (
        _named(agent.name, known.prompts.get(agent.name)),
        state_of(agent, all_stopped=all_stopped, paused=paused, incidents=incidents),
        strip_of(figures.strip),
        failed_of(agent.name, figures),
        unbroken(span(figures.p95)) if figures.p95 is not None else "–",
        amount_in_words("usd", known.spent[agent.name]) if agent.name in known.spent else "–",
        moment(figures.last_at),
        moment(known.wakes.get(agent.name)),
        stop_button(agent, request),
    )


def _named(name: str, prompt: PromptAgent | None) -> SafeString:
    does = "a prompt agent" if prompt else first_line_of(docstring_of(name))
    return format_html('{}<span class="console-does">{}</span>', link(page("runs_agentstop", name), name), coded(does))


def docstring_of(name: str) -> str:
    """Of its function, as its author wrote it; empty without code here."""
    try:
        return inspect.getdoc(registry.get(name).body) or ""
    except KeyError:
        return ""


def first_line_of(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return shorten(line, 100, placeholder=" …")


def state_of(
    agent: AgentState,
    *,
    all_stopped: bool = False,
    paused: Sequence[Trigger] = (),
    incidents: Sequence[Incident] = (),
) -> SafeString:
    if agent.is_stopped:
        return format_html('<span class="console-dot console-dot-bad">stopped</span> {}', since(agent))
    if all_stopped:
        return SafeString('<span class="console-dot console-dot-bad">stopped with all agents</span>')
    if paused:
        triggers = joined([link(page("triggers_trigger", one.pk), one.slug) for one in paused])
        return format_html('<span class="console-dot console-dot-bad">paused</span> trigger {}', triggers)
    running = f", {agent.running:,} running" if agent.running else ""
    if incidents:
        failing = link(page("runs_incident", incidents[0].pk), "failing")
        return format_html('<span class="console-dot console-dot-bad">{}</span>{}', failing, running)
    return format_html('<span class="console-dot console-dot-good">on</span>{}', running)


def since(agent: AgentState) -> SafeString:
    why = f": {agent.reason}" if agent.reason else ""
    return format_html("{} since {}, by {}{}", in_words(agent.name), moment(agent.stopped_at), agent.stopped_by, why)


def strip_of(statuses: Sequence[str]) -> SafeString | str:
    """A mark for each of the last runs: its colour and its height show how it ended, and a text names the counts."""
    shown = statuses[-STRIP:]
    if not shown:
        return "–"
    counts = ", ".join(f"{count} {status}" for status, count in Counter(shown).most_common())
    marks = html.format_html_join("", '<i class="strip-{}"></i>', ((status,) for status in shown))
    text = f"The last {len(shown)} runs, the oldest first: {counts}" if len(shown) > 1 else f"The last run: {shown[0]}"
    return html.format_html('<span class="strip" role="img" aria-label="{}" title="{}">{}</span>', text, text, marks)


def failed_of(name: str, figures: Figures) -> SafeString | str:
    if not figures.ended:
        return "–"
    text = f"{figures.failed} of {figures.ended}"
    return link(listing("runs_run", agent=name, status__exact="failed"), text) if figures.failed else text


def stop_button(agent: AgentState, request: HttpRequest) -> SafeString | str:
    if not request.user.has_perm("runs.stop_agent"):
        return ""
    action, label = ("start", "Start") if agent.is_stopped else ("stop", "Stop")
    url = reverse(f"admin:runs_agentstop_{action}", args=[spelled(agent.name)])
    return html.format_html(
        '<a class="console-button" href="{}" aria-label="{} {}">{}</a>', url, label, called(agent), label
    )


def called(agent: AgentState) -> str:
    return "all agents" if agent.name == EVERY else f"agent {agent.name}"
