from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.links import link, page, short
from config.console.parts.moments import moment
from config.console.parts.panel import COUNTED, Panel, column, time_column
from config.console.parts.sections import Facts, Section, Table, Text, pretty
from runs.models import AuditEntry

PAGES = {
    "run": "runs_run",
    "approval": "runs_approval",
    "checklist": "agents_checklist",
    "event": "triggers_event",
    "trigger": "triggers_trigger",
    "source": "triggers_source",
    "schedule": "triggers_schedule",
    "backfill": "triggers_backfill",
    "exclusioncalendar": "triggers_exclusioncalendar",
    "apitoken": "triggers_apitoken",
    "delivery": "runs_delivery",
    "recipient": "runs_recipient",
    "recipientgroup": "runs_recipientgroup",
    "connection": "runs_connection",
}
SEVERAL = "*"  # instead of an object's id
SHOWN = 50


class NewestValues(admin.AllValuesFieldListFilter):
    """Offers the values of the newest entries: no index finds those of all."""

    def __init__(self, field: Any, request: HttpRequest, *args: Any, **named: Any) -> None:
        super().__init__(field, request, *args, **named)
        last = AuditEntry.objects.order_by("-id").values_list("id", flat=True).first() or 0
        self.lookup_choices = self.lookup_choices.filter(id__gt=last - COUNTED)


@admin.register(AuditEntry)
class AuditPanel(Panel):
    """Changes made by people in the console, the API or the command line."""

    list_display = ("when", "by", "action", "subject", "details")
    list_filter = (("action", NewestValues), ("kind", NewestValues))
    search_fields = ("by", "object_id", "address")
    search_help_text = "account, object id or client address"
    ordering = ("-id",)

    when = time_column("when", "at")

    @column("on")
    def subject(self, entry: AuditEntry) -> SafeString:
        return subject_of(entry)

    @column("detail")
    def details(self, entry: AuditEntry) -> str:
        return details_of(entry)

    def sections(self, request: HttpRequest, obj: AuditEntry) -> list[Section]:
        rows = [("Time", moment(obj.at)), ("By", obj.by), ("Action", obj.action), ("Object", subject_of(obj))]
        facts = Facts(rows=[*rows, *([("From", obj.address)] if obj.address else [])])
        return [facts, Text(title="Detail", text=pretty(obj.detail))]


def entries_of(kind: str, object_id: object, *, parts: Mapping[str, Iterable[object]] | None = None) -> Table:
    """The audit entries of one object and of the objects that belong to it: ids by kind."""
    meant = Q(kind=kind, object_id=str(object_id))
    for part, ids in (parts or {}).items():
        meant |= Q(kind=part, object_id__in=[str(id) for id in ids])
    entries: QuerySet[AuditEntry] = AuditEntry.objects.filter(meant).order_by("-at")
    return Table(
        title="Audit log",
        headers=("Time", "By", "Action", "Detail"),
        rows=[
            (moment(entry.at), _whole(entry.by), _whole(entry.action), details_of(entry)) for entry in entries[:SHOWN]
        ],
        empty="No entries.",
    )


def subject_of(entry: AuditEntry) -> SafeString:
    noun = PAGES.get(entry.kind)
    words = _nouns().get(entry.kind, entry.kind)
    if entry.object_id == SEVERAL:
        return format_html("{}: several, or all", words)
    name = short(entry.object_id) if len(entry.object_id) == 36 else entry.object_id
    text = format_html("{} {}", words, name)
    return link(page(noun, entry.object_id), text) if noun else text


@cache
def _nouns() -> dict[str, str]:
    """The names of models by kind, such as "API token"."""
    return {str(model._meta.model_name): str(model._meta.verbose_name) for model in apps.get_models()}


def details_of(entry: AuditEntry) -> str:
    return ", ".join(f"{name}: {_plain(value)}" for name, value in entry.detail.items())


def _whole(word: str) -> SafeString:
    return format_html('<span class="console-word">{}</span>', word)


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
