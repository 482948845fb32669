"""Messages of the outbox with topics that this version does not know."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from runs.ports import known_topics
from runs.sign import LATE, NAMED, WARNING, Problem, Sign, age, span

SQL = f"""
WITH RECURSIVE topics(topic) AS (
  (SELECT topic FROM runs_outboxmessage ORDER BY topic LIMIT 1)
  UNION ALL
  SELECT (SELECT topic FROM runs_outboxmessage message WHERE message.topic > topics.topic ORDER BY topic LIMIT 1)
  FROM topics WHERE topics.topic IS NOT NULL
)
SELECT topic, late FROM (
  SELECT topic, (SELECT {age("min(available_at)")} FROM runs_outboxmessage WHERE topic = topics.topic) AS late
  FROM topics WHERE topic <> ALL (%(topics)s::text[])) unknown
WHERE late > 0 ORDER BY topic
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class UnknownTopic:
    """`late`: how many seconds ago its first message was due."""

    topic: str
    late: float


def problems(rows: Sequence[UnknownTopic]) -> Iterator[Problem]:
    late = max((one.late for one in rows), default=0.0)
    if late > LATE.total_seconds():
        yield Problem(
            name="outbox-unknown",
            severity=WARNING,
            text=f"The outbox holds messages with topics this version does not know, the oldest for {span(late)}: "
            f"{', '.join(sorted(one.topic for one in rows)[:NAMED])}. A newer version or a removed app wrote them.",
            remedy="Start a dispatcher of the version that wrote them.",
            lasted=timedelta(seconds=late),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )


UNKNOWN_TOPICS = Sign(
    name="unknown_topics",
    sql=SQL,
    row=UnknownTopic,
    problems=problems,
    kinds=("outbox-unknown",),
    parameters=lambda: {"topics": known_topics()},
    limit=None,
)
