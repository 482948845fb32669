"""The Agents page: which agents there are, what of them runs, and the buttons that stop and start them."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils import html
from django.utils.safestring import SafeString

from agents import registry
from config.console.access.audit import entries_of
from config.console.incidents.failure_rates import MOST, Rate, rates_of_agents
from config.console.parts import fields
from config.console.parts.dialogs import attempt, leave
from config.console.parts.html import format_html
from config.console.parts.links import joined, link, listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.pages import form_page, plain_page
from config.console.parts.panel import Panel, acting
from config.console.parts.sections import Notice, Section, Table
from runs.actions.stop_agents import (
    EVERY,
    AgentState,
    StoppedRun,
    all_agents,
    find_agent,
    in_words,
    start_agents,
    stop_agents,
)
from runs.exceptions import RunError, UnknownAgent
from runs.models import AgentStop
from runs.queues.names import meant, spelled
from triggers.models import Gate, Trigger

SHOWN = 20  # stopped runs named in the message
STOPS = (
    "No run of it starts, and runs that are running end within seconds, with their requests to models. They wait, and go on "
    "from their journals once it is started. Events are still accepted and become runs."
)


class StopForm(forms.Form):
    reason = fields.CharField(required=False, max_length=300, label="Reason", help_text="Shown while it is stopped.")


@admin.register(AgentStop)
class AgentPanel(Panel):
    """The Agents page, and the actions on its agents."""

    own_pages = {"agents": "agents/", "stop": "<path:name>/stop/", "start": "<path:name>/start/"}

    # The Agents page replaces the list and the detail pages.

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return redirect("admin:runs_agentstop_agents")

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect("admin:runs_agentstop_agents")

    def agents_view(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm("runs.view_agentstop"):
            raise PermissionDenied
        everything, *agents = all_agents()
        sections: list[Section] = []
        if everything.is_stopped:
            sections.append(Notice(text=_since(everything), level="bad", details=["No run starts."]))
        return plain_page(self, request, title="Agents", sections=[*sections, _table(everything, agents, request)])

    # Actions

    def stop_view(self, request: HttpRequest, name: str) -> HttpResponse:
        agent = self._agent(request, name)
        form = StopForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            return self._stop(request, agent, form.cleaned_data["reason"])
        return self._ask(request, form, agent, title=f"Stop {called(agent)}", submit="Stop", said=STOPS)

    def _stop(self, request: HttpRequest, agent: AgentState, reason: str) -> HttpResponse:
        try:
            runs = stop_agents(agent.name, reason=reason, by=acting(request))
        except RunError as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(request, _said_of(runs))
        return leave(request, back())

    def start_view(self, request: HttpRequest, name: str) -> HttpResponse:
        agent = self._agent(request, name)
        if request.method == "POST":
            return attempt(request, lambda: start_agents(agent.name, by=acting(request)), done="Started.", back=back())
        said = "Its runs start again; those that were stopped go on from their journals."
        return self._ask(request, forms.Form(), agent, title=f"Start {called(agent)}", submit="Start", said=said)

    def _agent(self, request: HttpRequest, name: str) -> AgentState:
        if not request.user.has_perm("runs.stop_agent"):
            raise PermissionDenied
        try:
            return find_agent(meant(name))
        except UnknownAgent as unknown:
            raise Http404(str(unknown)) from None

    def _ask(
        self, request: HttpRequest, form: forms.Form, agent: AgentState, *, title: str, submit: str, said: str
    ) -> HttpResponse:
        sections: list[Section] = [Notice(text=said), entries_of("agentstop", agent.name)]
        return form_page(self, request, form, title=title, submit=submit, back=back(), sections=sections)


def _said_of(runs: list[StoppedRun]) -> SafeString | str:
    if not runs:
        return "Stopped. Nothing of it was running."
    links = [format_html("{} {}", run.agent, run_link(run.id)) for run in runs[:SHOWN]]
    more = [f"{len(runs) - SHOWN} more"] if len(runs) > SHOWN else []
    return format_html("Stopped, with {} running run{}: {}.", len(runs), pluralize(len(runs)), joined([*links, *more]))


def _table(everything: AgentState, agents: list[AgentState], request: HttpRequest) -> Table:
    gates, rates, paused = _gates(), rates_of_agents(), _paused()
    return Table(
        title="Agents",
        headers=("Agent", "State", "Running", "Failed of its last runs", "Durable", "Gate", ""),
        rows=[
            ("all agents", _state(everything), everything.running, "", "", "", _button(everything, request)),
            *[
                (
                    link(listing("runs_run", agent=agent.name), agent.name),
                    _state(agent, all_stopped=everything.is_stopped, paused=paused.get(agent.name, ())),
                    agent.running,
                    rates.get(agent.name, Rate()).in_short,
                    _durable(agent.name),
                    gates.get(agent.name, ""),
                    _button(agent, request),
                )
                for agent in agents
            ],
        ],
        empty="",
        note="A stopped agent's events become runs that wait.",
    )


def _state(agent: AgentState, *, all_stopped: bool = False, paused: Sequence[Trigger] = ()) -> SafeString:
    if agent.is_stopped:
        return format_html('<span class="console-dot console-dot-bad">stopped</span> {}', _since(agent))
    if all_stopped:
        return SafeString('<span class="console-dot console-dot-bad">stopped with all agents</span>')
    if paused:
        triggers = joined([link(page("triggers_trigger", one.pk), one.slug) for one in paused])
        return format_html('<span class="console-dot console-dot-bad">paused</span> trigger {}', triggers)
    return SafeString('<span class="console-dot console-dot-good">on</span>')


def _paused() -> dict[str, list[Trigger]]:
    """By agent, the triggers that are paused."""
    found = defaultdict(list)
    for trigger in Trigger.objects.filter(enabled=True, paused_at__isnull=False).order_by("slug")[:MOST]:
        found[trigger.agent].append(trigger)
    return found


def _since(agent: AgentState) -> SafeString:
    why = f": {agent.reason}" if agent.reason else ""
    return format_html("{} since {}, by {}{}", in_words(agent.name), moment(agent.stopped_at), agent.stopped_by, why)


def _gates() -> dict[str, str]:
    """What the gates of each agent have answered, over all its triggers."""
    sums = Gate.objects.values("agent").annotate(quiet_=Sum("quiet"), fired_=Sum("fired"), failed_=Sum("failed"))
    return {
        one["agent"]: f"{one['quiet_']:,} quiet, {one['fired_']:,} fired, {one['failed_']:,} failed" for one in sums
    }


def _durable(name: str) -> str:
    try:
        return "yes" if registry.get(name).durable else "no"
    except KeyError:
        return "no code here"


def _button(agent: AgentState, request: HttpRequest) -> SafeString | str:
    if not request.user.has_perm("runs.stop_agent"):
        return ""
    action, label = ("start", "Start") if agent.is_stopped else ("stop", "Stop")
    url = reverse(f"admin:runs_agentstop_{action}", args=[spelled(agent.name)])
    return html.format_html(
        '<a class="console-button" href="{}" aria-label="{} {}">{}</a>', url, label, called(agent), label
    )


def called(agent: AgentState) -> str:
    return "all agents" if agent.name == EVERY else f"agent {agent.name}"


def back() -> str:
    return reverse("admin:runs_agentstop_agents")
