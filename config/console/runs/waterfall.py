"""Attempts, steps and waits of a run as bars over one axis of time, and the chosen one of them beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar
from urllib.parse import urlencode

from django.http import HttpRequest
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from config.console.parts.axis import Axis
from config.console.parts.moments import instant
from config.console.runs.journal import Entry, Page, read_page
from config.console.runs.journal_entry import Opened, fork_url, open_entry
from config.console.runs.words import took
from runs.models import Attempt, Run, Step
from runs.states import LIVE, RunStatus

ATTEMPTS = 200  # shown for the time span of one page


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Left edge and width in percent of the axis, the name of its colour, and its title."""

    left: float
    width: float
    state: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """An entry beside its bar. `url`: the page on which it is chosen; `content`: what a script shows of it."""

    entry: Entry
    bar: Bar
    took: str
    url: str
    content: str


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """A page of the journal, drawn. `chosen`: the content of one of its entries, if there is a chosen one."""

    template: ClassVar[str] = "admin/console/waterfall.html"
    page: Page
    chosen: Opened | None
    fork: str
    rows: Sequence[Row]
    attempts: Sequence[Bar]
    start: SafeString
    end: SafeString
    shortened: str
    shade: SafeString
    url: str

    @property
    def note(self) -> str:
        """The total counts, and the part that is shown."""
        page = self.page
        steps = _counted(page.steps, "step") + (f" ({page.failed:,} failed or not ended)" if page.failed else "")
        shown = f"{page.first:,} to {page.last:,} of {page.count:,} shown" if page.pages > 1 else ""
        shade = f"idle time is shaded and drawn {self.shortened}" if self.shortened else ""
        return " · ".join(filter(None, (f"{steps}, {_counted(page.waits, 'wait')}", shown, shade)))

    @property
    def links(self) -> list[tuple[str, str, bool]]:
        """Text, URL and whether it is the current page, for the first, the last and the neighbouring pages."""
        near = {1, self.page.pages, *range(self.page.number - 2, self.page.number + 3)}
        numbers = sorted(number for number in near if 1 <= number <= self.page.pages)
        return [(str(number), self._url(number), number == self.page.number) for number in numbers]

    @property
    def other_filter(self) -> str:
        return self._url(0, only_failed=not self.page.only_failed)

    def _url(self, number: int, *, only_failed: bool | None = None) -> str:
        is_filtered = self.page.only_failed if only_failed is None else only_failed
        query = {**({"entries": number} if number else {}), **({"only": "failed"} if is_filtered else {})}
        return f"{self.url}?{urlencode(query)}#journal"


def waterfall(run: Run, request: HttpRequest) -> list[Waterfall]:
    """The requested page; None for a run without a journal, which did all its work in one transaction."""
    page = read_page(run, request)
    if not page.steps and not page.waits:
        return []
    now = timezone.now()
    start = min((entry.began for entry in page.entries), default=run.created_at)
    end = max((entry.ended or now for entry in page.entries), default=start)
    attempts = _attempts(run, start, end, now)
    if page.number == 1 and attempts:
        start = min(start, attempts[0][0])
    axis = Axis(start, end, [(began, ended) for began, ended, _ in attempts])
    here, content = reverse("admin:runs_run_change", args=[run.pk]), reverse("admin:runs_run_entry", args=[run.pk])
    query = {name: value for name in ("entries", "only") if (value := request.GET.get(name))}
    chosen = _chosen(run, page)
    return [
        Waterfall(
            page=page,
            chosen=chosen,
            fork=fork_url(run, chosen, request) if chosen else "",
            rows=[
                _row(
                    entry,
                    axis,
                    now,
                    url=f"{here}?{urlencode({**query, 'entry': entry.key})}#journal-entry",
                    content=f"{content}?{urlencode({'key': entry.key})}",
                )
                for entry in page.entries
            ],
            attempts=[_bar(axis, *attempt, title=attempt[2]) for attempt in attempts],
            start=instant(axis.start),
            end=instant(axis.end),
            shortened=axis.shortened,
            shade=_shade(axis),
            url=here,
        )
    ]


def _chosen(run: Run, page: Page) -> Opened | None:
    """The chosen entry, else the one that a person looks for first: the first that failed, or that is in doubt."""
    keys = {entry.key for entry in page.entries}
    goes_on = run.status in LIVE and run.status != RunStatus.UNCERTAIN
    troubled = {RunStatus.FAILED, *([] if goes_on else [Step.Status.STARTED])}
    first = next((entry.key for entry in page.entries if entry.kind == "step" and entry.state in troubled), "")
    key = page.chosen if page.chosen in keys else first
    return open_entry(run, key) if key else None


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{pluralize(number)}"


def _attempts(run: Run, start: datetime, end: datetime, now: datetime) -> list[tuple[datetime, datetime, str]]:
    """The time span and the outcome of each claim."""
    within = Attempt.objects.filter(run=run, started_at__lte=end, ended_at__gte=start).order_by("epoch")
    ended = list(within.values_list("started_at", "ended_at", "outcome")[:ATTEMPTS])
    if run.status == RunStatus.RUNNING and run.claimed_at:
        ended.append((run.claimed_at, now, "running"))
    return ended


def _row(entry: Entry, axis: Axis, now: datetime, *, url: str, content: str) -> Row:
    return Row(
        entry=entry,
        bar=_bar(axis, entry.began, entry.ended or now, entry.state),
        took=took(entry.began, entry.ended) if entry.ended or entry.kind == "wait" else "",
        url=url,
        content=content,
    )


def _bar(axis: Axis, began: datetime, ended: datetime, state: str, *, title: str = "") -> Bar:
    left = axis.at(began)
    lasted = took(began, ended) if ended - began >= timedelta(milliseconds=1) else "under 1 ms"
    return Bar(
        left=left, width=max(0.0, round(axis.at(ended) - left, 3)), state=state, title=f"{title} {lasted}".strip()
    )


def _shade(axis: Axis) -> SafeString:
    """Idle stretches as a CSS gradient."""
    stops = format_html_join(
        "",
        ", transparent {left}%, var(--idle) {left}%, var(--idle) {right}%, transparent {right}%",
        ({"left": left, "right": right} for left, right in axis.bands),
    )
    return format_html("linear-gradient(to right, transparent 0%{})", stops) if stops else SafeString("none")
