"""The health line of a source: its word and what that rests on, its last event, the rate, what waits, and the last refusal."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Model
from django.utils import timezone

from agents.kernel.durations import in_words
from config.console.parts.html import format_html
from config.console.parts.links import event_link, joined
from config.console.parts.moments import moment
from config.console.parts.sections import Cell, Facts
from config.console.sources.condition import FACTOR, Condition
from runs.db.sql import fetch_as
from triggers.events.order import seq_before
from triggers.models import RefusedDelivery, Source

COUNTED = 10_000
HOUR = timedelta(hours=1)
# Dispatched events and the others are in indexes of their own; neither part reads more than COUNTED rows.
HEALTH = """
WITH waiting AS (
  SELECT id, seq, received_at, dispatched_at, "time" FROM triggers_event
  WHERE source_id = %(source)s::uuid AND dispatched_at IS NULL ORDER BY seq LIMIT %(most)s::integer
), dispatched AS (
  SELECT received_at, dispatched_at FROM triggers_event
  WHERE source_id = %(source)s::uuid AND dispatched_at IS NOT NULL AND seq > %(above)s::bigint AND received_at >= %(since)s::timestamptz
  ORDER BY seq DESC LIMIT %(most)s::integer
), last AS (
  (SELECT id, seq, received_at, dispatched_at, "time" FROM triggers_event
   WHERE source_id = %(source)s::uuid AND dispatched_at IS NOT NULL ORDER BY seq DESC LIMIT 1)
  UNION ALL SELECT * FROM waiting ORDER BY seq DESC LIMIT 1
)
SELECT last.id AS last_id, last.received_at AS last_at, last."time" AS last_happened_at,
  (SELECT count(*) FROM waiting) AS waiting, (SELECT min(received_at) FROM waiting) AS waiting_since,
  (SELECT count(*) FROM dispatched) + (SELECT count(*) FROM waiting WHERE received_at >= %(since)s::timestamptz) AS lately,
  (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY dispatched_at - received_at) FROM dispatched) AS lag
FROM (SELECT) one LEFT JOIN last ON true
"""


@dataclass(frozen=True, kw_only=True)
class Health:
    """Counts stop at COUNTED; `lag` is the median time from reception to dispatch in the last hour."""

    last_id: UUID | None
    last_at: datetime | None
    last_happened_at: datetime | None
    waiting: int
    waiting_since: datetime | None
    lately: int
    lag: timedelta | None


def health_of(source_id: UUID) -> Health:
    since = timezone.now() - HOUR
    names = {"source": source_id, "since": since, "above": seq_before(since), "most": COUNTED}
    [health] = fetch_as(Health, HEALTH, names)
    return health


def health_line(source: Source, condition: Condition) -> Facts:
    health = health_of(source.pk)
    refused = RefusedDelivery.objects.filter(source=source).order_by("-last_at").first()
    return Facts(
        title="Health",
        rows=[
            *_evidence(condition),
            ("Last event", _last(health)),
            ("Events in the last hour", _counted(health.lately)),
            ("Waiting for dispatch", _waiting(health)),
            ("Reception to dispatch (median of the last hour)", in_words(health.lag) if health.lag is not None else ""),
            ("Last refusal", _refusal(refused)),
        ],
    )


def _evidence(condition: Condition) -> Iterator[tuple[str, Cell]]:
    since = format_html("{}, since {}", condition.word, moment(condition.since))
    yield (
        "State",
        format_html("{} {}", since if condition.since else condition.word, condition.why and f"({condition.why})"),
    )
    if not (rhythm := condition.rhythm):
        return
    what = "samples" if condition.counts_samples else "events"
    yield "Its rhythm", f"{rhythm.words}, {in_words(rhythm.longest)} at most, between its last {rhythm.gaps + 1} {what}"
    past = [
        f"{in_words(quiet)} {ago}"
        for quiet, ago in ((rhythm.yesterday, "yesterday"), (rhythm.week, "a week ago"))
        if quiet is not None
    ]
    yield "Quiet at this time", " and ".join(past)
    silent_after, least = in_words(rhythm.silent_after), in_words(rhythm.least)
    yield "Silent after", f"{silent_after} without one: {FACTOR} times the longest of these, and {least} at least"


def _last(health: Health) -> Cell:
    if health.last_id is None or health.last_at is None:
        return "none within the retention period"
    shown: list[Cell] = [event_link(health.last_id), moment(health.last_at)]
    if health.last_happened_at and health.last_at - health.last_happened_at > timedelta(minutes=1):
        shown.append(f"{in_words(health.last_at - health.last_happened_at)} after it happened")
    return joined(shown)


def _waiting(health: Health) -> Cell:
    if not health.waiting_since:
        return "none"
    return format_html("{}, the first since {}", _counted(health.waiting), moment(health.waiting_since))


def _refusal(refused: Model | None) -> Cell:
    if not isinstance(refused, RefusedDelivery):
        return "none within the retention period"
    return format_html("{}: {} ({})", moment(refused.last_at), refused.reason, refused.status)


def _counted(count: int) -> str:
    return f"{count:,}" if count < COUNTED else f"{COUNTED:,} or more"
