"""The search above the list of events, and the page of events that it finds."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

from config.console.lists.panel import without_view
from config.console.parts.browser_zone import zone_shown
from config.console.parts.histogram import Histogram, Range, Rows, few, histogram
from config.console.parts.list_search import A_TIME, DataField, InstantOrAge, ListSearch, own_parameters, text_options
from config.console.parts.moments import moment
from config.console.parts.panel import KeysetPaginator
from triggers.events.order import in_parts
from triggers.events.pages import CURSOR, Page, page_of
from triggers.events.search import Search
from triggers.exceptions import RuleError
from triggers.models import Event, Source

BEFORE = "before"  # the parameter with the `seq` below which a page begins
SOURCE = "source__id__exact"  # of the list's filter
# What a page of the list needs to know about its events' dispatch, as bars show it.
EVENTS = Rows(
    nouns=("event", "events"),
    outcome="(dispatched_at IS NULL)::int::text",
    by_outcome=lambda found: {"waiting": found.get("1", 0), "plain": found.get("0", 0)},
    keys={"plain": "dispatched", "waiting": "not dispatched yet"},
)


class SearchForm(ListSearch):
    """Conditions on events, of the query of a request; all of them apply."""

    type = forms.CharField(label="Type", **text_options("An exact type, or a pattern", "order.*"))
    subject = forms.CharField(label="Subject", **text_options("The exact subject", "customer-42"))
    start = InstantOrAge(label="Received from", **text_options(A_TIME, "2h or 2026-11-20T09:00"))
    end = InstantOrAge(label="Received before", **text_options(A_TIME, "1h or 2026-11-21"))
    field = DataField(label="Field of its data", **text_options("A path and a value", "customer.id=42"))

    def search(self, source: str = "") -> Search:
        """The search of a valid form. Raises RuleError."""
        given = self.cleaned_data
        return Search(
            source=source, type=given["type"].strip(), subject=given["subject"].strip(), start=given["start"],
            end=given["end"], fields=(given["field"],) if given["field"] else (),
        )  # fmt: skip


class EventList(ChangeList):
    """A page of the events that a search finds. It is neither counted nor numbered: see `triggers.events.pages`."""

    def __init__(self, request: HttpRequest, *arguments: Any) -> None:
        self.search_form = SearchForm(request)
        self.search: Search | None = None  # None: it is not valid
        self.before = _before(request)
        super().__init__(request, *arguments)

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        self.filter_params.pop(BEFORE, None)
        found: dict[str, Any] = super().get_filters_params(params)
        return without_view(own_parameters(SearchForm, found))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Event]:
        events: QuerySet[Event] = super().get_queryset(request, exclude_parameters)
        try:
            self.search = searched(self.search_form, request)
        except RuleError as error:
            if self.search_form.is_valid():
                self.search_form.add_error(error.field or None, f"{error}.")
            return events.none()
        return events  # `page_of` applies the search

    def get_results(self, request: HttpRequest) -> None:
        page = Page(ids=[])
        if self.search:
            page = page_of(self.search, size=self.list_per_page, before=self.before, among=self.queryset)
        rows = {event.pk: event for event in self.queryset.order_by().filter(pk__in=page.ids)}
        self.result_list = [rows[id] for id in page.ids if id in rows]
        self.result_count = len(self.result_list)
        self.show_full_result_count, self.show_admin_actions, self.full_result_count = False, True, None
        self.can_show_all, self.multi_page = False, False
        self.paginator = KeysetPaginator(self.result_list, self.list_per_page)
        self.is_full = page.is_full
        self.newest_query = self.get_query_string() if self.before else ""
        self.older_query = self.get_query_string({BEFORE: str(page.before)}) if page.before else ""
        self.searched_to = moment(received_at(page.before)) if page.before and not page.is_full else ""
        self.histogram = self._histogram(request) if self.search else None
        self.links = [(f"{url}{self.get_query_string()}", label) for url, label in self.panel.list_links(request)]

    def _histogram(self, request: HttpRequest) -> Histogram | None:
        search, rows = cast(Search, self.search), EVENTS
        found: QuerySet[Any] = search.of(self.queryset)
        if search.fields or self.query:
            waiting, dispatched = (few(part) for part in in_parts(found))
            if waiting is not None and dispatched is not None:
                found, rows = self.model._default_manager.all(), EVENTS.of([*waiting, *dispatched])
            elif search.fields:
                return None  # to look into the data of so many events would take as long as it is large
        oldest = self.result_list[-1].received_at if self.result_list and not self.before else None
        over = Range.of(search.start, search.end, oldest)
        return histogram(found, rows, over, zone_shown(request), self._query, request.GET.get("start", ""))

    def _query(self, times: Mapping[str, str]) -> str:
        return self.get_query_string({name: at or None for name, at in times.items()}, [BEFORE])

    @property
    def panel(self) -> Any:
        return self.model_admin

    @property
    def is_searching(self) -> bool:
        return any(self.search_form.data.values())

    @property
    def kept_parameters(self) -> list[tuple[str, str]]:
        """The parameters of the list's other filters."""
        names = {*SearchForm.base_fields}
        return [(name, value) for name, values in self.filter_params.items() if name not in names for value in values]


def search_of(request: HttpRequest) -> Search:
    """The search that a link from the list of events carries. Raises RuleError."""
    return searched(SearchForm(request), request)


def searched(form: SearchForm, request: HttpRequest) -> Search:
    if not form.is_valid():
        raise RuleError(" ".join(str(error) for errors in form.errors.values() for error in errors))
    id = _uuid(request.GET.get(SOURCE, ""))
    source = Source.objects.filter(pk=id).values_list("slug", flat=True).first() if id else None
    return form.search(source or "")


def received_at(seq: int) -> datetime:
    """The time of arrival of a dispatched event."""
    found: datetime = Event.objects.values_list("received_at", flat=True).get(seq=seq, dispatched_at__isnull=False)
    return found


def _before(request: HttpRequest) -> int | None:
    text = request.GET.get(BEFORE, "")
    if text and not CURSOR.fullmatch(text):
        raise IncorrectLookupParameters
    return int(text) if text else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
