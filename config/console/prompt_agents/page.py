"""Prompt agents: agents that people make, edit and try without code."""

import difflib
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import CharField, Count, OuterRef, Prefetch, QuerySet, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.forms import BaseDialogForm

from agents import registry
from agents.models import Checklist, PromptAgent, PromptAgentVersion
from agents.prompt_agents.definition import Definition
from agents.tools import toolbox
from config.console.access.audit import entries_of
from config.console.agents.page_files import file_page
from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.html import shortened
from config.console.parts.json_field import JsonField
from config.console.parts.links import link, listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel, acting, button, column, newest
from config.console.parts.previews import is_asked, respond
from config.console.parts.sections import Facts, Notice, Section, Table, Text
from config.console.parts.service_button import service_button
from config.console.prompt_agents.form import EditForm, NewForm, WakeForm, in_words
from config.console.prompt_agents.preview import preview_asked, preview_of
from config.console.runs.shadow import told
from config.console.triggers.words import in_words as wakes_in_words
from runs.budgets.room import PERIODS, amount_in_words
from runs.exceptions import IllegalState
from runs.models import Run
from runs.shadow.process import NotTried, report_of
from triggers.exceptions import Invalid, RuleError
from triggers.models import Schedule, Trigger
from triggers.page_files.pages import InstructionsPage
from triggers.prompt_agents.as_json import caps_of
from triggers.prompt_agents.edit import (
    Change,
    changes,
    create_prompt_agent,
    delete_prompt_agent,
    edit_prompt_agent,
    newest_of,
    restore_prompt_agent,
)
from triggers.prompt_agents.wakes import add_wake
from triggers.schedules.rows import RELATED

SHOWN = 20
DELETE = dialog(
    "Delete this agent?",
    "Its triggers are disabled, its schedules paused and its runs wait. Its versions stay, so it can be restored.",
    "Delete",
)
RESTORE = dialog("Restore this agent?", "Its runs go on. Its triggers stay disabled until you enable them.", "Restore")


class TryForm(forms.Form):
    data = JsonField(  # type: ignore[assignment]
        required=False,
        label="Data",
        help_text="Enter JSON as the data of a trial event. Empty: without an event.",
    )


@admin.register(PromptAgent)
class PromptAgentPanel(Panel):
    """Agents without code."""

    list_display = ("name", "state", "does", "version", "wakes", "edited")
    search_fields = ("name",)
    search_help_text = "name"
    ordering = ("name",)
    actions_detail = ("try_now", "edit", "wake", "checklist", "silence", "file", "delete_agent", "restore")
    own_pages = {"preview": "preview/"}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agents.change_promptagent")

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return respond(request, preview_asked(request))

    # The list

    def get_queryset(self, request: HttpRequest) -> QuerySet[PromptAgent]:
        versions = PromptAgentVersion.objects.filter(agent=OuterRef("pk"), number=OuterRef("newest"))
        says = KeyTextTransform("instructions", "definition")
        triggers = Trigger.objects.filter(agent=OuterRef("name"), enabled=True).order_by().values("agent")
        agents: QuerySet[PromptAgent] = super().get_queryset(request)
        return agents.annotate(
            says=Subquery(versions.annotate(says=says).values("says"), output_field=CharField()),
            edited_at=Subquery(versions.values("at")),
            trigger_count=Subquery(triggers.annotate(count=Count("pk")).values("count")),
        )

    @column("state", label={"active": "success", "deleted": "default"})
    def state(self, agent: PromptAgent) -> str:
        return "deleted" if agent.is_deleted else "active"

    @column("does")
    def does(self, agent: Any) -> str:
        return shortened(" ".join((agent.says or "").split()), 100)

    @column("version")
    def version(self, agent: PromptAgent) -> int:
        return agent.newest

    @column("triggers")
    def wakes(self, agent: Any) -> int:
        return int(agent.trigger_count or 0)

    @column("last edit")
    def edited(self, agent: Any) -> Any:
        return moment(agent.edited_at)

    # Making and changing

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewForm(request.POST or None, by=acting(request), may_raise=request.user.has_perm("runs.raise_budget"))
        if form.is_valid() and not is_asked(request) and (made := _create(form, acting(request))):
            messages.success(request, f"{made.name} is ready. Try it.")
            return leave(request, page("agents_promptagent", made.pk))
        back = listing("agents_promptagent")
        groups = form.groups(preview_of(form))
        return form_page(
            self, request, form, title="New prompt agent", submit="Create the agent", back=back, groups=groups
        )

    @button("Edit", permissions=["agents.change_promptagent"], icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = get_object_or_404(PromptAgent, pk=object_id)
        initial = {**newest_of(agent).definition, "version": agent.newest}
        form = EditForm(request.POST or None, initial=initial, by=acting(request))
        back = page("agents_promptagent", agent.pk)
        if form.is_valid():
            act = partial(
                edit_prompt_agent,
                agent.pk,
                form.definition(),
                by=acting(request),
                version=form.cleaned_data["version"],
            )
            try:
                return attempt(request, act, done="Saved. Runs that have begun end with their version.", back=back)
            except Invalid as wrong:
                form.refuse(wrong)
        title = f"Edit {agent.name}"
        return form_page(self, request, form, title=title, submit="Save", back=back, obj=agent, groups=form.groups())

    @button("Add a trigger", permissions=["agents.change_promptagent"], icon="alarm_add")
    def wake(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = get_object_or_404(PromptAgent, pk=object_id, deleted_at=None)
        form = WakeForm(request.POST or None)
        back = page("agents_promptagent", agent.pk)
        if form.is_valid() and not is_asked(request):
            if not (wanted := form.wakes()):
                form.add_error("when", "Enter a schedule, event types or a source.")
            else:
                try:
                    with transaction.atomic():
                        made = [add_wake(agent.name, one, by=acting(request)).slug for one in wanted]
                except (Invalid, RuleError) as wrong:
                    form.add_error(None, f"{wrong}.")
                else:
                    messages.success(request, f"Triggers: {', '.join(made)}.")
                    return leave(request, back)
        groups = form.when_groups(preview_of(form))
        title = f"Add a trigger to {agent.name}"
        return form_page(self, request, form, title=title, submit="Add", back=back, obj=agent, groups=groups)

    @button("Checklist", permissions=["view"], icon="checklist")
    def checklist(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return leave(request, page("agents_checklist", self._checklist(object_id).pk))

    @button("Silence", permissions=["agents.change_checklist"], icon="notifications_off")
    def silence(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return leave(request, page("agents_checklist", self._checklist(object_id).pk).replace("/change/", "/silence/"))

    def _checklist(self, object_id: str) -> Checklist:
        agent = get_object_or_404(PromptAgent, pk=object_id)
        return get_object_or_404(Checklist, agent=agent.name, trigger="")

    @button("File", permissions=["agents.change_promptagent"], icon="draft")
    def file(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = get_object_or_404(PromptAgent, pk=object_id, deleted_at=None)
        return file_page(self, request, InstructionsPage(agent), back=page("agents_promptagent", agent.pk))

    @service_button(
        "Delete", "agents.change_promptagent", DELETE, icon="delete", url_path="delete-agent", done="Deleted."
    )
    def delete_agent(self, object_id: str, by: str) -> None:
        delete_prompt_agent(int(object_id), by=by)

    @button("Restore", permissions=["agents.change_promptagent"], icon="restore_from_trash", dialog=RESTORE)
    def restore(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        back, by = page("agents_promptagent", object_id), acting(request)
        try:
            done = "Restored. Its triggers are disabled."
            return attempt(request, lambda: restore_prompt_agent(int(object_id), by=by), done=done, back=back)
        except Invalid as wrong:
            messages.error(request, str(wrong))
            return leave(request, back)

    # Trying

    @button("Try it now", permissions=["agents.try_promptagent"], icon="science", url_path="try", variant="primary")
    def try_now(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = get_object_or_404(PromptAgent, pk=object_id)
        form = TryForm(request.POST if request.method == "POST" else None)
        note = Notice(
            text="Its model is called now, at the model's price. Nothing is sent and nothing is kept; only tools that read "
            "are called. It takes up to a minute."
        )
        sections: list[Section] = [note]
        if request.method == "POST" and form.is_valid():
            sections = _tried(agent, form.cleaned_data["data"], acting(request))
        back = page("agents_promptagent", agent.pk)
        title = f"Try {agent.name}"
        return form_page(self, request, form, title=title, submit="Try it now", back=back, obj=agent, sections=sections)

    # The page

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        agent = PromptAgent.objects.filter(pk=object_id).only("deleted_at").first()
        if agent is None:
            return {}
        of_live_ones = ("try_now", "edit", "wake", "silence", "file", "delete_agent")
        return {**dict.fromkeys(of_live_ones, not agent.is_deleted), "restore": agent.is_deleted}

    def sections(self, request: HttpRequest, obj: PromptAgent) -> list[Section]:
        definition = Definition.load(newest_of(obj).definition)
        return [
            *_notices(obj, definition),
            _facts(obj, definition),
            Text(title="Instructions", text=definition.instructions),
            _triggers(obj),
            _tools(definition),
            *_connections(definition),
            _runs(obj),
            _versions(obj),
            entries_of("promptagent", obj.pk),
        ]


def _create(form: NewForm, by: str) -> PromptAgent | None:
    try:
        return create_prompt_agent(
            form.cleaned_data["name"],
            form.definition(),
            when=form.wakes(),
            checklist=form.items(),
            budget=form.caps(),
            by=by,
        )
    except Invalid as wrong:
        form.refuse(wrong)
    except RuleError as wrong:
        form.add_error("when", f"{wrong}.")
    except ValueError as wrong:
        form.add_error("checklist", f"{wrong}.")
    except IllegalState as wrong:
        form.add_error(None, str(wrong))
    return None


def _tried(agent: PromptAgent, data: Any, by: str) -> list[Section]:
    """The report of a trial: first the verdict, then what a shadow run always shows."""
    try:
        report = report_of(["prompt_agent", "try", agent.name, "--by", by, "--data", "-"], given=json.dumps(data))
    except NotTried as why_not:
        return [Notice(level="bad", text=str(why_not))]
    verdict, left = report["result"], report["left"]
    if not isinstance(verdict, dict) or "notify" not in verdict:
        return told(report)
    rows = [
        ("Verdict", "it has something to report" if verdict["notify"] else "it has nothing to report"),
        ("Urgency", verdict["urgency"] if verdict["notify"] else ""),
        *(
            ("Would notify", ", ".join(one["to"]) or "those who get notifications that name no recipient")
            for one in left["notices"]
        ),
        *(("Would emit", one["type"]) for one in left["emissions"]),
    ]
    sections: list[Section] = [Facts(title="Its verdict", rows=rows)]
    if verdict["text"]:
        sections.append(Text(title="Message", text=verdict["text"]))
    if verdict["items"]:
        items = [(one["item"], one["outcome"], one["text"]) for one in verdict["items"]]
        sections.append(Table(title="Items", headers=("Item", "Outcome", "Text"), rows=items, empty=""))
    return [*sections, *told(report)]


def _notices(agent: PromptAgent, definition: Definition) -> Iterator[Notice]:
    if agent.is_deleted:
        yield Notice(
            text="Deleted: its runs neither start nor continue. Restore it to let them continue.", level="warning"
        )
    if agent.name in {one.name for one in registry.agents_in_code()}:
        yield Notice(
            text="An agent in code has this name, and its triggers wake that one. Rename it, or delete this one.",
            level="bad",
        )
    known = {tool.name for tool in toolbox.all_tools()}
    if gone := [name for name in definition.tools if name not in known]:
        yield Notice(
            text=f"It may use {', '.join(gone)}, which is not registered: its runs fail. Edit its tools, or install the app.",
            level="bad",
        )


def _facts(agent: PromptAgent, definition: Definition) -> Facts:
    sends = [*(["notify " + (", ".join(definition.notify_to) or "everyone")] if definition.notify else [])]
    sends += [f"emit {definition.emit}"] if definition.emit else []
    first = "after a person has approved it" if definition.ask_first and sends else ""
    thread = ["that of the thread"] if definition.by_thread else []
    caps = ", ".join(_cap(name, amount) for name, amount in caps_of(agent.name).items())
    return Facts(
        rows=[
            ("Name", agent.name),
            ("Version", agent.newest),
            ("Answer", " ".join(filter(None, (" and ".join(sends) or "kept with the run", first)))),
            ("Model", definition.model or "that of WAKEFUL_MODEL"),
            ("Session", " or ".join([*thread, *([definition.session] if definition.session else [])])),
            ("Acts for", definition.acts_for),
            ("Budget", link(listing("runs_budget", q=agent.name), caps or "none")),
        ]
    )


def _cap(name: str, amount: str) -> str:
    """Such as "$1.00 a day"."""
    period, _, measure = name.partition("_")
    return amount_in_words(measure, Decimal(amount)) + f" {PERIODS[period]}"


def _triggers(agent: PromptAgent) -> Table:
    schedules = Schedule.objects.select_related(*RELATED)
    triggers = (
        Trigger.objects.filter(agent=agent.name)
        .order_by("slug")
        .prefetch_related(Prefetch("schedules", schedules))[:SHOWN]
    )
    rows = []
    for trigger in triggers:
        fires = [one.next_fire_at for one in trigger.schedules.all() if one.next_fire_at and one.task.enabled]
        rows.append(
            (
                link(page("triggers_trigger", trigger.pk), trigger.slug),
                trigger.status,
                wakes_in_words(trigger),
                moment(min(fires, default=None)),
            )
        )
    return Table(
        title="When it wakes",
        headers=("Trigger", "State", "Wakes on", "Next fire"),
        rows=rows,
        empty="Never by itself. Use Add a trigger.",
    )


def _tools(definition: Definition) -> Table:
    known = {tool.name: tool for tool in toolbox.all_tools()}
    rows = [(in_words(known[name]) if name in known else f"{name}: not registered",) for name in definition.tools]
    return Table(title="Tools", headers=("Tool",), rows=rows, empty="None.")


def _connections(definition: Definition) -> Iterator[Table]:
    if not definition.connections:
        return
    tools = toolbox.connections_of(definition.tools)
    rows = [
        (name, ", ".join(tools.get(called, ())) or called) for called, name in sorted(definition.connections.items())
    ]
    note = f"It acts for {definition.acts_for}, who alone may edit it." if definition.acts_for else ""
    yield Table(title="Connections", headers=("Connection", "Used by"), rows=rows, empty="", note=note)


def _runs(agent: PromptAgent) -> Table:
    numbers = dict(agent.versions.order_by("number").values_list("fingerprint", "number"))
    found = newest(Run.objects.filter(agent=agent.name)).order_by("-id")
    runs = found.only("id", "status", "version", "created_at")[:SHOWN]
    return Table(
        title="Its last runs",
        headers=("Run", "Status", "Version", "Created"),
        rows=[(run_link(run.pk), run.status, numbers.get(run.version, "–"), moment(run.created_at)) for run in runs],
        empty="None.",
    )


def _versions(agent: PromptAgent) -> Table:
    versions = list(agent.versions.all()[: SHOWN + 1])
    definitions = {one.number: Definition.load(one.definition) for one in versions}
    rows: list[tuple[Any, ...]] = []
    for one in versions[:SHOWN]:
        head = (one.number, one.by, moment(one.at))
        before = definitions.get(one.number - 1)
        found = changes(before, definitions[one.number]) if before else []
        rows += [
            (*(head if number == 0 else ("", "", "")), change.what.replace("_", " "), *_cells(change))
            for number, change in enumerate(found)
        ] or [(*head, "created" if one.number == 1 else "", "", "")]
    return Table(
        title="Versions",
        headers=("Version", "By", "When", "Changed", "Before", "After"),
        rows=rows,
        empty="None.",
        note=f"The newest {SHOWN}." if len(versions) > SHOWN else "",
    )


def _cells(change: Change) -> tuple[str, str]:
    """The differing lines of long texts."""
    if change.what != "instructions":
        return _shown(change.before), _shown(change.after)
    before, after = change.before.splitlines(), change.after.splitlines()
    # Not ndiff, which compares each line with each, character by character: seconds for a long text.
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    removed, added = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
    return removed, added


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{called}: {name}" for called, name in sorted(value.items()))
    return ", ".join(value) if isinstance(value, list) else str(value)
