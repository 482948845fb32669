"""The part of a metric source's page about its series: drawn with the bounds of a detector, episodes, and the runs they woke."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from agents.kernel.durations import in_words
from config.console.parts.html import format_html
from config.console.parts.links import joined, link, page, run_link
from config.console.parts.moments import moment
from config.console.parts.sections import Cell, Notice, Section, Table
from config.console.sources.metrics.chart import Chart, Mark, Span, draw, figure
from runs.actions.event_runs import runs_of_events
from runs.models import Run
from runs.states import RunStatus
from triggers.models import DetectorState, MetricDetector, MetricEpisode, MetricSeries, Source
from triggers.sources.metrics.arm import observations_of, try_on
from triggers.sources.metrics.detector import Observation, detectors

DRAWN = 3  # series on one page
EPISODES = 30  # of the source, the newest
SERIES = 100
CHOICES = {"1": "1 day", "7": "7 days", "30": "30 days", "90": "90 days"}
LEVELS = {RunStatus.SUCCEEDED: "good", RunStatus.FAILED: "bad"}


def days_of(value: str | None, default: str = "7") -> str:
    return value if value in CHOICES else default


def sections_of(source: Source, request: HttpRequest) -> list[Section]:
    series = list(MetricSeries.objects.filter(source=source).order_by("name")[:SERIES])
    days = days_of(request.GET.get("days"))
    chosen = [one for one in series if one.name == request.GET.get("series")] or series[:DRAWN]
    episodes = list(
        MetricEpisode.objects.filter(detector__source=source)
        .select_related("detector", "series")
        .order_by("-opened_at")[:EPISODES]
    )
    runs = runs_by_event(episodes)
    return [
        _held_back(source),
        *[drawn(one, float(days), episodes, runs, _links(source, series, one.name, days)) for one in chosen],
        _detectors(source),
        _episodes(episodes, runs),
    ]


def drawn(
    series: MetricSeries,
    days: float,
    episodes: Sequence[MetricEpisode],
    runs: dict[str, list[Run]],
    note: Cell,
) -> Chart:
    """The series as it was, with the bounds of the detector that was armed last."""
    own = [one for one in episodes if one.series_id == series.pk]
    armed = MetricDetector.objects.filter(source=series.source_id, disarmed_at=None).order_by("-armed_at").first()
    if armed and armed.name in detectors():
        readings: Any = try_on(series, armed.name, armed.settings, days=days).readings
    else:
        readings = [(observation, None) for observation in observations_of(series, days=days)]
    return draw(
        f"Series {series.name}" if series.name else "Series",
        [*readings, *_until_now(readings)],
        spans=[_span(one) for one in own],
        marks=[_mark(run) for run in {run.pk: run for one in own for run in _woken(one, runs)}.values()],
        note=note,
    )


def runs_by_event(episodes: Sequence[MetricEpisode]) -> dict[str, list[Run]]:
    events = [UUID(id) for one in episodes for id in one.event_ids]
    found: dict[str, list[Run]] = {}
    runs: QuerySet[Run] = runs_of_events(events).only("id", "agent", "status", "event_ids", "created_at")
    for run in runs if events else ():
        for id in run.event_ids:
            found.setdefault(str(id), []).append(run)
    return found


def _until_now(readings: Sequence[Any]) -> list[Any]:
    """The time since the last sample belongs to the picture."""
    now = timezone.now().timestamp()
    return [(Observation(now, None), None)] if readings and readings[-1][0].at < now else []


def _woken(episode: MetricEpisode, runs: dict[str, list[Run]]) -> list[Run]:
    return [run for id in episode.event_ids for run in runs.get(id, [])]


def _span(episode: MetricEpisode) -> Span:
    end = episode.closed_at or timezone.now()
    return Span(
        start=episode.since.timestamp(),
        end=end.timestamp(),
        title=f"{episode.detector.name}: {_lasted(episode)}, level {episode.level}",
        is_open=episode.closed_at is None,
    )


def _mark(run: Run) -> Mark:
    return Mark(
        at=run.created_at.timestamp(),
        title=f"{run.agent}: {run.status}",
        url=page("runs_run", run.pk),
        level=LEVELS.get(RunStatus(run.status), "neutral"),
    )


def _links(source: Source, series: Sequence[MetricSeries], shown: str, days: str) -> Cell:
    lengths: list[Cell] = [
        link(f"?days={value}", text) if value != days else format_html("<b>{}</b>", text)
        for value, text in CHOICES.items()
    ]
    if len(series) <= DRAWN:
        return joined(lengths, " · ")
    names = [link(f"?{_query(one.name, days)}", one.name) for one in series]
    return format_html("{}<br>{}", joined(lengths, " · "), joined(names, " · "))


def _query(name: str, days: str) -> str:
    return urlencode({"series": name, "days": days})


def _held_back(source: Source) -> Notice:
    """The state of the most important detector of a series."""
    open_ones = MetricEpisode.objects.filter(detector__source=source, closed_at=None).count()
    states = DetectorState.objects.filter(detector__source=source, detector__disarmed_at=None)
    held_back = states.filter(state__progress__held_back__gt=0).values_list("state__progress__held_back", flat=True)
    if count := sum(held_back):
        text = f"{count} episodes made no event: their series had too many within an hour. Give the detector more margin or time."
        return Notice(text=text, level="warning")
    if open_ones:
        return Notice(text=f"{open_ones} episode{'s are' if open_ones > 1 else ' is'} open.", level="bad")
    if not MetricDetector.objects.filter(source=source, disarmed_at=None).exists():
        return Notice(
            text="No detector is armed: its samples wake no agent. Try one on the series, then arm it.", level="warning"
        )
    return Notice(text="No episode is open.", level="good")


def _detectors(source: Source) -> Table:
    rows = MetricDetector.objects.filter(source=source).order_by("disarmed_at", "-armed_at")[:20]
    return Table(
        title="Detectors",
        note="Each sees all series of this source.",
        headers=("Detector", "Settings", "Armed", "Disarmed"),
        rows=[(_label(one), _settings(one), moment(one.armed_at), _disarmed(one)) for one in rows],
        empty="None yet.",
    )


def _label(row: MetricDetector) -> str:
    known = detectors().get(row.name)
    return f"{known.label if known else row.name} (no. {row.pk})"


def _settings(row: MetricDetector) -> str:
    known = detectors().get(row.name)
    defaults = {field.name: field.default for field in known.fields} if known else {}
    said = [f"{name} {value}" for name, value in row.settings.items() if value != defaults.get(name)]
    return ", ".join(said) or "as by default"


def _disarmed(row: MetricDetector) -> Cell:
    if row.disarmed_at is None:
        return ""
    return format_html("{} {}", moment(row.disarmed_at), row.error)


def _episodes(episodes: Sequence[MetricEpisode], runs: dict[str, list[Run]]) -> Table:
    return Table(
        title="Episodes",
        note=f"The newest {EPISODES}. An event is recorded when one opens, worsens and closes.",
        headers=("Opened", "Series", "Detector", "Lasted", "Worst value", "Expected", "Events", "Runs"),
        rows=[
            (
                moment(one.opened_at),
                one.series.name or "–",
                _label(one.detector),
                _lasted(one),
                figure(one.value),
                figure(one.expected),
                joined([link(page("triggers_event", id), number + 1) for number, id in enumerate(one.event_ids)]),
                joined([format_html("{} {}", run_link(run.pk, run.agent), run.status) for run in _woken(one, runs)])
                or "none",
            )
            for one in episodes
        ],
        empty="None within the retention period.",
    )


def _lasted(episode: MetricEpisode) -> str:
    if episode.closed_at is None:
        return f"open for {in_words(_since(episode.opened_at))}"
    return in_words(episode.closed_at - episode.opened_at) + (", disarmed" if episode.is_disarmed else "")


def _since(at: datetime) -> timedelta:
    return timezone.now() - at
