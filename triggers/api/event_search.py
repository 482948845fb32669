"""Searches of events over the API."""

from typing import Any

from django.db.models import Max, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from runs.api.resource import NewestFirst, Query
from triggers.api.fields import InstantInUtc, naming
from triggers.events.order import in_parts
from triggers.events.pages import CURSOR, page_above, page_of
from triggers.events.search import FieldIs, Search
from triggers.models import Event


class EventQuery(Query):
    """Conditions on events; all of them apply."""

    source = serializers.CharField(required=False, default="", max_length=255, help_text="slug of the source")  # type: ignore[assignment]  # a field, by its metaclass
    type = serializers.CharField(
        required=False, default="", max_length=255, help_text="a type, or a pattern such as order.*"
    )
    subject = serializers.CharField(required=False, default="", max_length=1024, help_text="the exact subject")
    start = InstantInUtc(required=False, default=None, help_text="received from this time on, in UTC without an offset")
    end = InstantInUtc(required=False, default=None, help_text="received before this time")
    field = serializers.ListField(
        child=serializers.CharField(max_length=2001),
        required=False,
        default=list,
        help_text="a field of the data, as path=value: customer.id=42, items[].sku=a-1; repeat it for several. "
        "Data that PostgreSQL stores in more than 16 kB is not searched.",
    )


class EventPages(NewestFirst):
    """Pages by `seq` at a bounded cost (see `triggers.events.pages`); those of a search lead forwards only."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        self.url = request.build_absolute_uri()
        search, size, cursor = search_of(request), self.get_page_size(request), _cursor(request)
        goes_back = cursor is not None and cursor < 0
        page = page_above(abs(cursor or 0), size) if goes_back else page_of(search, size=size, before=cursor)
        rows = _rows(queryset, page.ids)
        self.following = page.before
        leads_back = search == Search() and cursor is not None and bool(rows) and rows[0].seq < _highest()
        self.before = rows[0].seq + 1 if leads_back else None
        return rows

    def get_next_link(self) -> Any:
        return replace_query_param(self.url, self.cursor_query_param, str(self.following)) if self.following else None

    def get_previous_link(self) -> Any:
        return replace_query_param(self.url, self.cursor_query_param, f"-{self.before}") if self.before else None


def search_of(request: Request) -> Search:
    """The search of a request's query parameters. Raises ValidationError."""
    given = EventQuery.read(request)
    with naming("field"):
        fields = tuple(FieldIs.parse(text) for text in given.pop("field"))
        return Search(**given, fields=fields)


def _rows(events: QuerySet[Event], ids: Any) -> list[Event]:
    rows = {event.pk: event for event in events.order_by().filter(pk__in=ids)}
    return [rows[id] for id in ids if id in rows]


def _highest() -> int:
    return max(part.aggregate(highest=Max("seq"))["highest"] or 0 for part in in_parts(Event.objects.all()))


def _cursor(request: Request) -> int | None:
    text = request.query_params.get("cursor", "")
    if not text:
        return None
    if not CURSOR.fullmatch(text):
        raise ValidationError({"cursor": ["Not a cursor of this list. Use the list's `next` and `previous` links."]})
    return int(text)
