"""The form above the list of runs, and the list of what it finds."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from agents.kernel.ids import first_id_at
from config.console.lists.panel import without_view
from config.console.parts.browser_zone import zone_shown
from config.console.parts.histogram import Histogram, Range, Rows, few, histogram
from config.console.parts.list_search import A_TIME, DataField, InstantOrAge, ListSearch, own_parameters, text_options
from config.console.parts.panel import LOOKED_THROUGH, newest
from config.console.runs.find import find_by_field
from config.console.runs.input_and_result import HIDDEN, SEES_EVENTS
from config.console.runs.words import by_outcome
from runs.models import Run
from runs.states import RunStatus
from triggers.events.search import YEARS
from triggers.exceptions import RuleError

STATUS = "status__exact"
# Each has an index of its own in the order of the ids.
RARE = (RunStatus.FAILED, RunStatus.UNCERTAIN, RunStatus.WAITING)


class SearchForm(ListSearch):
    """A run's id has the time of the event that woke it, so that a range of these is a part of the primary key."""

    start = InstantOrAge(label="Woken from", **text_options(A_TIME, "2h or 2026-11-20T09:00"))
    end = InstantOrAge(label="Woken before", **text_options(A_TIME, "1h or 2026-11-21"))
    field = DataField(
        label="Field of its event's data",
        **text_options("A path and a value: runs of the newest events that have it", "order_id=A-312"),
    )
    version = forms.CharField(
        label="Version of its code",
        **text_options(f"At its first or last claim, in the newest {LOOKED_THROUGH:,} runs", "2026.11.2"),
    )

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request)
        self.sees_events = request.user.has_perm(SEES_EVENTS)

    def clean(self) -> None:
        if self.cleaned_data.get("field") and not self.sees_events:
            self.add_error("field", HIDDEN)
        for name in ("start", "end"):
            at = self.cleaned_data.get(name)
            if at and at.year not in YEARS:
                self.add_error(name, f"{at:%Y-%m-%d} is not between the years {YEARS[0]} and {YEARS[-1]}.")
        start, end = self.cleaned_data.get("start"), self.cleaned_data.get("end")
        if start and end and start >= end:
            self.add_error("end", "The range ends before it begins.")

    def span(self) -> Q:
        """The range of ids of a valid form's range of time."""
        start, end = self.cleaned_data["start"], self.cleaned_data["end"]
        after = Q(id__gte=first_id_at(start)) if start else Q()
        return after & Q(id__lt=first_id_at(end)) if end else after

    def of(self, runs: QuerySet[Run]) -> QuerySet[Run]:
        """The runs among these that a valid form finds. Raises RuleError."""
        given = self.cleaned_data
        runs = runs.filter(self.span())
        if given["field"]:
            runs = runs.filter(pk__in=find_by_field(given["field"], given["start"], given["end"]))
        if version := given["version"].strip():
            runs = newest(runs, self.span()).filter(Q(version=version) | Q(begun_version=version))
        return runs


def span_of(request: HttpRequest) -> Q:
    """The span of time of the search, as a range of ids."""
    form = SearchForm(request)
    return form.span() if form.is_valid() else Q()


class RunList(ChangeList):
    """A page of the runs that a search finds, with the histogram above it."""

    def __init__(self, request: HttpRequest, *arguments: Any) -> None:
        self.search_form = SearchForm(request)
        self.is_valid = self.search_form.is_valid()
        super().__init__(request, *arguments)

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        return without_view(own_parameters(SearchForm, super().get_filters_params(params)))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Run]:
        runs: QuerySet[Run] = super().get_queryset(request, exclude_parameters)
        try:
            return self.search_form.of(runs) if self.is_valid else runs.none()
        except RuleError as error:
            self.is_valid = False
            self.search_form.add_error("field", f"{error}.")
            return runs.none()

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.histogram = self._histogram(request) if self.is_valid else None

    def _histogram(self, request: HttpRequest) -> Histogram:
        given = self.search_form.cleaned_data
        shown = [*self.result_list] if self.page_num == 1 else []
        oldest = _time_of(shown[-1].pk) if shown else None
        over = Range.of(given["start"], given["end"], oldest)
        rows = _rows(request.GET.get(STATUS, ""))
        if (self.query or given["field"]) and (ids := few(self.queryset)) is not None:
            rows = rows.of(ids)
        return histogram(self.queryset, rows, over, zone_shown(request), self._query, request.GET.get("start", ""))

    def _query(self, times: Mapping[str, str]) -> str:
        return self.get_query_string({name: at or None for name, at in times.items()}, ["p"])

    @property
    def is_searching(self) -> bool:
        return any(self.search_form.data.values())

    @property
    def kept_parameters(self) -> list[tuple[str, str]]:
        """The parameters of the list's other filters."""
        names = {*SearchForm.base_fields, "p"}
        return [(name, value) for name, values in self.filter_params.items() if name not in names for value in values]


def _rows(status: str) -> Rows:
    return Rows(
        nouns=("run", "runs"),
        outcome="status",
        by_outcome=by_outcome,
        keys={"succeeded": "succeeded", "failed": "failed", "other": "under way, uncertain or cancelled"},
        narrowed=f"status = '{status}'" if status in RARE else "",
    )


def _time_of(id: UUID) -> datetime:
    return datetime.fromtimestamp((id.int >> 80) / 1000, UTC)
