"""Named sessions: their turns, who holds them, and the rule of their size."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize
from django.utils.safestring import SafeString
from unfold.forms import BaseDialogForm

from agents.models import Session, SessionTurn
from agents.sessions.limits import MOST_CHARACTERS, MOST_TURNS, SUMMARY_LENGTH
from config.console.access.audit import entries_of
from config.console.parts import fields
from config.console.parts.dialogs import attempt, dialog
from config.console.parts.html import format_html, format_html_join, shortened
from config.console.parts.links import page, run_link
from config.console.parts.moments import moment
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel, acting, button, column, time_column
from config.console.parts.sections import Facts, Notice, Section, Table, Text, pretty
from config.console.parts.service_button import service_button
from runs.actions.sessions import clear_session, edit_session, remove_turn
from runs.models import Run, Wait

SHOWN = 100  # turns
WAITING = 10  # runs
CUT = 600  # characters of a part
MARK = "it has data of strangers, so it taints each run that reads it"


class EditForm(forms.Form):
    revision = forms.IntegerField(widget=forms.HiddenInput)
    summary = fields.TextField(
        required=False,
        max_length=SUMMARY_LENGTH,
        rows=8,
        help_text="Of earlier turns. Runs are given it before the turns that are left. You vouch for what you write.",
    )
    most_turns = fields.IntegerField(
        min_value=1, max_value=MOST_TURNS, label="Most turns", help_text="That a run is given, at most."
    )
    most_characters = fields.IntegerField(
        min_value=1, max_value=MOST_CHARACTERS, label="Most characters", help_text="Of these turns, as JSON."
    )
    overflow = fields.ChoiceField(
        choices=Session.Overflow.choices,
        label="When there are more",
        help_text="A summary is a request to the model of the run that comes next.",
    )


class TurnForm(BaseDialogForm):  # type: ignore[misc]
    turn = fields.IntegerField(min_value=1, label="Number of the turn")


REMOVE = dialog("Remove a turn?", "Runs are no longer given it. It cannot be brought back.", "Remove", TurnForm)
CLEAR = dialog("Clear this session?", "All its turns and its summary are removed for good.", "Clear")


@admin.register(Session)
class SessionPanel(Panel):
    """The histories that runs share by name."""

    list_display = ("name", "turns", "characters", "held", "used")
    search_fields = ("name",)
    ordering = ("name",)
    actions_detail = ("edit", "remove_one", "clear")
    used = time_column("last used", "used_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        given = Q(turns__messages__isnull=False)
        sessions: QuerySet[Session] = super().get_queryset(request)
        return sessions.annotate(
            turn_count=Count("turns", filter=given), character_count=Sum("turns__characters", filter=given)
        )

    @column("turns")
    def turns(self, session: Any) -> str:
        return f"{session.turn_count} of {session.most_turns}"

    @column("characters")
    def characters(self, session: Any) -> str:
        return f"{session.character_count or 0:,} of {session.most_characters:,}"

    @column("held by")
    def held(self, session: Session) -> Any:
        holder = _holder(session)
        return run_link(holder.pk, holder.agent) if holder else "–"

    @button("Edit", permissions=["agents.change_session"], icon="edit", variant="primary")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = get_object_or_404(Session, pk=object_id)
        names = ("revision", "summary", "most_turns", "most_characters", "overflow")
        form = EditForm(request.POST or None, initial={name: getattr(session, name) for name in names})
        back = page("agents_session", session.pk)
        if form.is_valid():
            act = partial(edit_session, session.pk, **form.cleaned_data, by=acting(request))
            return attempt(request, act, done="Saved.", back=back)
        return form_page(self, request, form, title=f"Session {session}", submit="Save", back=back, obj=session)

    @service_button(
        "Remove a turn", "agents.change_session", REMOVE, icon="delete", url_path="remove-turn", done="Removed."
    )
    def remove_one(self, object_id: str, by: str, turn: int) -> None:
        remove_turn(int(object_id), turn, by=by)

    @service_button("Clear", "agents.change_session", CLEAR, icon="delete_sweep", done="Cleared.")
    def clear(self, object_id: str, by: str) -> None:
        clear_session(int(object_id), by=by)

    def sections(self, request: HttpRequest, obj: Session) -> list[Section]:
        turns = list(obj.turns.filter(messages__isnull=False).order_by("-number")[: SHOWN + 1])
        summary = Text(title="Summary of earlier turns", text=obj.summary, note=MARK if obj.is_summary_tainted else "")
        return [
            _notice(obj, turns),
            _facts(obj),
            *([summary] if obj.summary else []),
            _turns(turns),
            entries_of("session", obj.pk),
        ]


def _notice(session: Session, turns: Sequence[SessionTurn]) -> Notice:
    waiting = Wait.objects.filter(status=Wait.Status.OPEN, kind=Wait.Kind.SESSION, asked__session=session.name)
    runs = [run_link(id) for id in waiting.order_by("id").values_list("run_id", flat=True)[: WAITING + 1]]
    named = [(run,) for run in runs[:WAITING]] + [("and others",)] * (len(runs) > WAITING)
    details = [format_html("Waiting for it: {}", format_html_join(", ", "{}", named))] if runs else []
    holder = _holder(session)
    if holder is None:
        return Notice(
            text=f"{_number_of(turns)}. No run holds it." if turns else "It is empty.",
            details=details,
        )
    text = format_html(
        "{} takes a turn: it is {}. Cancel that run to free the session.",
        run_link(holder.pk, holder.agent),
        holder.status,
    )
    return Notice(text=text, level="warning" if runs else "info", details=details)


def _number_of(turns: Sequence[SessionTurn]) -> str:
    return f"More than {SHOWN} turns" if len(turns) > SHOWN else f"{len(turns)} turn{pluralize(len(turns))}"


def _facts(session: Session) -> Facts:
    return Facts(
        rows=[
            ("Name", session.name),
            ("A run is given", f"{session.most_turns} turns, {session.most_characters:,} characters at most"),
            ("When there are more", session.get_overflow_display()),
            ("Last used", moment(session.used_at)),
        ]
    )


def _turns(turns: Sequence[SessionTurn]) -> Table:
    return Table(
        title="Turns",
        headers=("Turn", "Agent", "Run", "When", "Said", "Characters", "Trusted"),
        rows=[
            (
                turn.number,
                turn.agent,
                run_link(turn.run_id),
                moment(turn.at),
                _said(turn),
                f"{turn.characters:,}",
                "no" if turn.is_tainted else "yes",
            )
            for turn in turns[:SHOWN]
        ],
        empty="No turns.",
        note=f"The newest {SHOWN} turns." if len(turns) > SHOWN else "Newest first.",
    )


def _said(turn: SessionTurn) -> SafeString:
    from agents.sessions.messages import said_in  # imports pydantic-ai, which takes most of a second

    stored = turn.messages or []
    try:
        said = [(one.who, one.text) for one in said_in(stored)]
    except ValueError:  # of another version
        said = [("messages", pretty(stored))]
    lines = ((who, shortened(text, CUT)) for who, text in said)
    return format_html_join("", "<div><b>{}</b>: {}</div>", lines)


def _holder(session: Session) -> Run | None:
    if session.run_id is None:
        return None
    return Run.objects.live().filter(pk=session.run_id).only("id", "agent", "status").first()
