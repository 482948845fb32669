from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db.models import (
    BigAutoField,
    BigIntegerField,
    Case,
    Model,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    UUIDField,
    Value,
    When,
)
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString

from agents.models import Checklist, PromptAgent
from config.console.parts.filters import ConditionFilter
from config.console.parts.html import format_html, shortened
from config.console.parts.links import link, page, short
from config.console.parts.moments import moment
from config.console.parts.panel import COUNTED, Panel, column, time_column
from config.console.parts.sections import Facts, Section, Table, Text, pretty
from runs.models import AuditEntry, Connection, Incident, Recipient, RecipientGroup
from triggers.models import ApiToken, ExclusionCalendar, Schedule, Source, Subscription, Trigger

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
    "subscription": "triggers_subscription",
    "replay": "triggers_replay",
    "switch": "triggers_switch",
    "incident": "runs_incident",
    "budget": "runs_budget",
    "promptagent": "agents_promptagent",
}
SEVERAL = "*"  # instead of an object's id
SHOWN = 50
LONGEST = 100  # characters of a value in a list
MISSING = object()  # the value of a field that is not there
READ = 100_000  # newest entries that a filter by time reads
LOGINS = Q(action__in=["login", "logout", "login failed"])
MAINTENANCE = Q(action="prune")


NAMED = {  # models by the field that names their rows
    Trigger: "slug", Source: "slug", Subscription: "slug", ExclusionCalendar: "slug", Schedule: "task__name", ApiToken: "name",
    Recipient: "name", RecipientGroup: "name", Connection: "name", PromptAgent: "name", Incident: "name", Checklist: "agent",
}  # fmt: skip
KEYS = {UUIDField: r"^[0-9a-f-]{36}$", BigAutoField: r"^[0-9]{1,18}$", BigIntegerField: r"^[0-9]{1,18}$"}


def _name_of(model: type[Model], field: str) -> When:
    key = model._meta.pk
    kind, written = next((kind, written) for kind, written in KEYS.items() if isinstance(key, kind))
    rows = model._default_manager.filter(pk=Cast(OuterRef("object_id"), kind())).values(field)
    return When(Q(kind=model._meta.model_name, object_id__regex=written), then=Subquery(rows))


# The names that objects have now, by one look-up of a primary key for each entry of a page; null: it is not there any more.
CALLED = Case(*[_name_of(model, field) for model, field in NAMED.items()], default=Value(""), output_field=TextField())


class NewestValues(admin.AllValuesFieldListFilter):
    """Offers the values of the newest entries: no index finds those of all."""

    def __init__(self, field: Any, request: HttpRequest, *args: Any, **named: Any) -> None:
        super().__init__(field, request, *args, **named)
        last = AuditEntry.objects.order_by("-id").values_list("id", flat=True).first() or 0
        self.lookup_choices = self.lookup_choices.filter(id__gt=last - COUNTED)


class Since(admin.SimpleListFilter):
    """Since a named moment, or since one that the address gives: `?since=2026-11-26T22:00Z`. It reads the newest entries alone: no
    index finds those of a time."""

    title = "time"
    parameter_name = "since"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("1h", "Last hour"), ("today", "Today"), ("yesterday", "Since yesterday"), ("7d", "Last 7 days")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since = _moment(self.value() or "")
        if since is None:
            return queryset
        last = AuditEntry.objects.order_by("-id").values_list("id", flat=True).first() or 0
        return queryset.filter(at__gte=since, id__gt=last - READ)


class By(ConditionFilter):
    """What people have changed, apart from logins and from what runs and maintenance record."""

    title = "by"
    parameter_name = "done_by"
    conditions = {
        "people": ("People: console and API", (Q(by__startswith="admin:") | Q(by__startswith="token:")) & ~LOGINS),
        "commands": ("Commands, such as of deploys", Q(by__startswith="cli:") & ~MAINTENANCE),
        "logins": ("Logins", LOGINS),
        "rest": ("Runs and maintenance", Q(by__startswith="run:") | MAINTENANCE),
    }


def _moment(value: str) -> datetime | None:
    now = timezone.localtime()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {
        "1h": now - timedelta(hours=1),
        "today": midnight,
        "yesterday": midnight - timedelta(days=1),
        "7d": now - timedelta(days=7),
    }
    if value in named:
        return named[value]
    try:
        moment = parse_datetime(value.replace(" ", "+"))
    except ValueError:
        return None
    return timezone.make_aware(moment) if moment and timezone.is_naive(moment) else moment


@admin.register(AuditEntry)
class AuditPanel(Panel):
    """Changes made by people in the console, the API or the command line."""

    list_display = ("when", "by", "action", "subject", "details")
    list_filter = (Since, By, ("action", NewestValues), ("kind", NewestValues))
    search_fields = ("by", "object_id", "address")
    search_help_text = "account, object id or client address"
    ordering = ("-id",)

    when = time_column("when", "at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEntry]:
        entries: QuerySet[AuditEntry] = super().get_queryset(request).annotate(called=CALLED)
        return entries

    @column("on")
    def subject(self, entry: AuditEntry) -> SafeString:
        return subject_of(entry)

    @column("detail")
    def details(self, entry: AuditEntry) -> str:
        return details_of(entry)

    def sections(self, request: HttpRequest, obj: AuditEntry) -> list[Section]:
        rows = [("Time", moment(obj.at)), ("By", obj.by), ("Action", obj.action), ("Object", subject_of(obj))]
        edits = edits_of(obj)
        facts = Facts(rows=[*rows, *([("From", obj.address)] if obj.address else [])])
        table = Table(
            title="What has changed",
            headers=("Field", "Before", "Now"),
            rows=[(edit.field, _plain(edit.before), _plain(edit.after)) for edit in edits],
            empty="",
        )
        return [facts, *([table] if edits else []), Text(title="Detail", text=pretty(obj.detail))]


def newest_entries(since: str, *, done_by: Sequence[str], looked_through: int) -> list[AuditEntry]:
    """Those of the lists that `Since` and `By` show by these names, as far as the newest entries of all go, newest first."""
    wanted = Q()
    for name in done_by:
        wanted |= By.conditions[name][1]
    newest = AuditEntry.objects.order_by("-id").values("id")[:looked_through]
    found = AuditEntry.objects.filter(wanted, id__in=newest, at__gte=_moment(since)).annotate(called=CALLED)
    return list(found.order_by("-id"))


def entries_of(kind: str, object_id: object, *, parts: Mapping[str, Iterable[object]] | None = None) -> Table:
    """The audit entries of one object and of the objects that belong to it: ids by kind."""
    meant = Q(kind=kind, object_id=str(object_id))
    for part, ids in (parts or {}).items():
        meant |= Q(kind=part, object_id__in=[str(id) for id in ids])
    entries: QuerySet[AuditEntry] = AuditEntry.objects.filter(meant).order_by("-at")
    return Table(
        title="Audit log",
        headers=("Time", "By", "Action", "Detail"),
        is_cards=True,
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
    called = getattr(entry, "called", "")
    known = called or entry.detail.get("name") or entry.detail.get("slug")
    name = known or (short(entry.object_id) if len(entry.object_id) == 36 else entry.object_id)
    text = format_html("{} {}", words, name)
    return link(page(noun, entry.object_id), text) if noun and called is not None else text


@cache
def _nouns() -> dict[str, str]:
    """The names of models by kind, such as "API token"."""
    return {str(model._meta.model_name): str(model._meta.verbose_name) for model in apps.get_models()}


def details_of(entry: AuditEntry) -> str:
    """What the entry says, edits as “policy.retries: 3 → 5”."""
    said = [f"{name}: {_plain(value)}" for name, value in _beside(entry).items()]
    said += [f"{one.field}: {_short(one.before)} → {_short(one.after)}" for one in edits_of(entry)]
    return ", ".join(said) or ("nothing differs from before" if "was" in entry.detail else "")


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A field that has another value than before; of nested settings, the part that differs."""

    field: str
    before: object
    after: object


def edits_of(entry: AuditEntry) -> list[Edit]:
    """None for entries that an earlier version wrote: they have the new values alone."""
    was = _was(entry)
    return [edit for name, before in was.items() for edit in _edits(name, before, entry.detail.get(name, MISSING))]


def _was(entry: AuditEntry) -> dict[str, Any]:
    was = entry.detail.get("was")
    if isinstance(was, dict):
        return was
    return {"cap": was} if "was" in entry.detail and "cap" in entry.detail else {}  # of a cap


def _beside(entry: AuditEntry) -> dict[str, Any]:
    """The detail without the edits."""
    is_edit = isinstance(entry.detail.get("was"), dict)
    was = _was(entry)
    hidden = {"was"} if is_edit or was else set()
    return {name: value for name, value in entry.detail.items() if name not in {*was, *hidden}}


def _edits(field: str, before: object, after: object) -> Iterator[Edit]:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield Edit(field=field, before=before, after=after)
        return
    for name in sorted({*before, *after}):
        if before.get(name, MISSING) != after.get(name, MISSING):
            yield from _edits(f"{field}.{name}", before.get(name, MISSING), after.get(name, MISSING))


def _short(value: object) -> str:
    return shortened(_plain(value), LONGEST)


def _whole(word: str) -> SafeString:
    return format_html('<span class="console-word">{}</span>', word)


def _plain(value: object) -> str:
    if value is MISSING or value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
