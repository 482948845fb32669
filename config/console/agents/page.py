"""The pages of agents: their list, a page for each, and the buttons that stop and start them."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils.safestring import SafeString

from config.console.access.audit import entries_of
from config.console.agents.list import called, since, table_of_agents
from config.console.agents.one_agent import sections_of
from config.console.parts import fields
from config.console.parts.dialogs import attempt, leave
from config.console.parts.html import format_html
from config.console.parts.links import joined, run_link
from config.console.parts.pages import Group, form_page, plain_page
from config.console.parts.panel import Panel, acting
from config.console.parts.sections import Notice, Section
from runs.actions.stop_agents import (
    EVERY,
    AgentState,
    StoppedRun,
    all_agents,
    find_agent,
    of_it,
    start_agents,
    stop_agents,
)
from runs.exceptions import RunError, UnknownAgent
from runs.models import AgentStop
from runs.queues.names import meant
from triggers.models import Trigger

SHOWN = 20  # stopped runs named in the message
STOPS = (
    "No run{} starts, and runs that are running end within seconds, with their requests to models. They wait, and go on "
    "from their journals after a start. Events are still accepted and become runs."
)


class StopForm(forms.Form):
    reason = fields.CharField(required=False, max_length=300, label="Reason", help_text="Shown until the next start.")


@admin.register(AgentStop)
class AgentPanel(Panel):
    """The Agents page, and the actions on its agents."""

    own_pages = {"agents": "agents/", "stop": "<path:name>/stop/", "start": "<path:name>/start/"}

    # The Agents page replaces the list and the detail pages.

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return redirect("admin:runs_agentstop_agents")

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> HttpResponse:
        """The page of an agent, whether it is stopped or not."""
        _require_view(request)
        if object_id == EVERY:
            return redirect("admin:runs_agentstop_agents")
        everything, *agents = all_agents()
        agent = next((one for one in agents if one.name == object_id), None) or _without_code(object_id)
        sections = sections_of(agent, everything, request)
        return plain_page(self, request, title=agent.name, sections=sections, obj=AgentStop(agent=agent.name))

    def agents_view(self, request: HttpRequest) -> HttpResponse:
        _require_view(request)
        everything, *agents = all_agents()
        sections: list[Section] = []
        if everything.is_stopped:
            sections.append(Notice(text=since(everything), level="bad", details=["No run starts."]))
        return plain_page(
            self, request, title="Agents", sections=[*sections, table_of_agents(everything, agents, request)]
        )

    # Actions

    def stop_view(self, request: HttpRequest, name: str) -> HttpResponse:
        agent = self._agent(request, name)
        form = StopForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            return self._stop(request, agent, form.cleaned_data["reason"])
        return self._ask(
            request,
            form,
            agent,
            title=f"Stop {called(agent)}",
            submit="Stop",
            said=f"{_reach(agent)} {STOPS.format(of_it(agent.name))}",
        )

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
        groups = [Group(sections=[Notice(text=said)]), Group(fields=list(form.visible_fields()))]
        groups = groups if form.fields else groups[:1]
        log = entries_of("agentstop", agent.name)
        return form_page(self, request, form, title=title, submit=submit, back=back(), groups=groups, sections=[log])


def _require_view(request: HttpRequest) -> None:
    if not request.user.has_perm("runs.view_agentstop"):
        raise PermissionDenied


def _without_code(name: str) -> AgentState:
    """An agent that only runs, or only a trigger, name."""
    try:
        return find_agent(name)
    except UnknownAgent:
        if "\0" in name or not Trigger.objects.filter(agent=name).exists():
            raise Http404(f"There is no agent {name!r}.") from None
    return AgentState(name=name, stopped_at=None, stopped_by="", reason="", stopped_seconds=None, running=0)


def _reach(agent: AgentState) -> str:
    """What a stop would end now."""
    running = f"{agent.running:,} running run{pluralize(agent.running)}"
    if agent.name != EVERY:
        return f"{running} of this agent."
    count = len(all_agents()) - 1
    return f"{count:,} agent{pluralize(count)}, {running}."


def _said_of(runs: list[StoppedRun]) -> SafeString | str:
    if not runs:
        return "Stopped. No run was running."
    links = [format_html("{} {}", run.agent, run_link(run.id)) for run in runs[:SHOWN]]
    more = [f"{len(runs) - SHOWN} more"] if len(runs) > SHOWN else []
    return format_html("Stopped, with {} running run{}: {}.", len(runs), pluralize(len(runs)), joined([*links, *more]))


def back() -> str:
    return reverse("admin:runs_agentstop_agents")
