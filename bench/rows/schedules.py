"""Schedules in bulk, in the tables of django-celery-beat, which are the same for both."""

from datetime import UTC, datetime, timedelta

import psycopg

# Every crontab fires at a minute of its own of the day, every interval once a day: none of them before QUIET is over.
QUIET = timedelta(hours=3)
MINUTES = 1_200
CRONTABS = """
INSERT INTO django_celery_beat_crontabschedule (minute, hour, day_of_week, day_of_month, month_of_year, timezone)
SELECT extract(minute FROM at)::text, extract(hour FROM at)::text, '*', '*', '*', 'UTC'
FROM (SELECT %(first)s::timestamptz AT TIME ZONE 'UTC' + make_interval(mins => n) AS at
      FROM generate_series(0, %(minutes)s::int - 1) n) each
RETURNING id
"""
INTERVAL = "INSERT INTO django_celery_beat_intervalschedule (every, period) VALUES (%s::int, %s::text) RETURNING id"
TASKS = """
INSERT INTO django_celery_beat_periodictask
  (name, task, args, kwargs, queue, headers, one_off, enabled, total_run_count, date_changed, description,
   crontab_id, interval_id, clocked_id, last_run_at, start_time)
SELECT %(prefix)s::text || n, 'bench.fired', '[]', '{}', %(queue)s::text, '{}', clocked IS NOT NULL, true, 0, now(), '',
       crontab, "interval", clocked, last_run_at, start_time
FROM ({rows}) made
"""
# Half by crontab, half by interval; these ran last at some time of the day before.
SPREAD = """
SELECT n, CASE WHEN n %% 2 = 0 THEN (%(crontabs)s::int[])[1 + n / 2 %% %(minutes)s::int] END AS crontab,
       CASE WHEN n %% 2 = 1 THEN %(daily)s::int END AS "interval", NULL::int AS clocked,
       CASE WHEN n %% 2 = 1 THEN %(first)s::timestamptz - interval '1 day' + make_interval(mins => n / 2 %% %(minutes)s::int) END
         AS last_run_at, NULL::timestamptz AS start_time
FROM generate_series(1, %(count)s::int) n
"""
TOGETHER = """
SELECT n, %(crontab)s::int AS crontab, NULL::int AS "interval", NULL::int AS clocked, NULL::timestamptz AS last_run_at,
       NULL::timestamptz AS start_time
FROM generate_series(1, %(count)s::int) n
"""
INSTANT = (
    "INSERT INTO django_celery_beat_clockedschedule (clocked_time) VALUES (now() - interval '1 minute') RETURNING id"
)
OVERDUE = """
SELECT 1 AS n, NULL::int AS crontab, NULL::int AS "interval", %(clocked)s::int AS clocked, NULL::timestamptz AS last_run_at,
       NULL::timestamptz AS start_time
"""
STEADY = """
SELECT n, NULL::int AS crontab, %(secondly)s::int AS "interval", NULL::int AS clocked, NULL::timestamptz AS last_run_at,
       %(first)s::timestamptz + make_interval(secs => (n - 1) / %(count)s::float8) AS start_time
FROM generate_series(1, %(count)s::int) n
"""
WAKE = """
UPDATE triggers_schedule schedule SET trigger_id = trigger.id
FROM triggers_trigger trigger, django_celery_beat_periodictask task
WHERE trigger.agent = 'bench.noop' AND task.id = schedule.task_id AND starts_with(task.name, %s::text)
"""
OFF = "UPDATE django_celery_beat_periodictask SET enabled = false WHERE enabled AND starts_with(name, %s::text) = %s::boolean"


class Rows:
    """Writes schedules into one database, those of ours or those of the peer."""

    def __init__(self, database_url: str, queue: str) -> None:
        self.connection = psycopg.connect(database_url, autocommit=True)
        self.queue = queue

    def spread(self, count: int, *, wakes: bool = False, prefix: str = "spread-") -> None:
        """Half by crontab and half by interval, each once a day."""
        first = datetime.now(UTC).replace(second=0, microsecond=0) + QUIET
        crontabs = self.connection.execute(CRONTABS, {"first": first, "minutes": MINUTES}).fetchall()
        given = {"crontabs": [id for (id,) in crontabs], "daily": self.interval(1, "days"), "first": first}
        self.add(prefix, SPREAD, given | {"count": count, "minutes": MINUTES}, wakes=wakes)

    def together(self, prefix: str, count: int, at: datetime, *, wakes: bool = False) -> None:
        """All at this minute."""
        found = self.connection.execute(CRONTABS, {"first": at, "minutes": 1}).fetchone()
        assert found
        self.add(prefix, TOGETHER, {"count": count, "crontab": found[0]}, wakes=wakes)

    def overdue(self, prefix: str) -> None:
        """One for an instant that is past."""
        found = self.connection.execute(INSTANT).fetchone()
        assert found
        self.add(prefix, OVERDUE, {"clocked": found[0]})

    def steady(self, prefix: str, rate: int, first: datetime) -> None:
        """So many fires a second from then on, each as far from the next as the others; they wake an agent."""
        self.add(prefix, STEADY, {"secondly": self.interval(1, "seconds"), "count": rate, "first": first}, wakes=True)

    def add(self, prefix: str, rows: str, given: dict[str, object], *, wakes: bool = False) -> None:
        with self.connection.transaction():
            self.connection.execute(TASKS.replace("{rows}", rows), {"prefix": prefix, "queue": self.queue, **given})
            if wakes:
                self.connection.execute(WAKE, [prefix])

    def end(self, prefix: str) -> None:
        self.connection.execute(OFF, [prefix, True])

    def end_others(self, prefix: str) -> None:
        self.connection.execute(OFF, [prefix, False])

    def vacuum(self) -> None:
        """What a database that has had them for long has done."""
        self.connection.execute("VACUUM (ANALYZE)")
        self.connection.execute("CHECKPOINT")

    def interval(self, every: int, period: str) -> int:
        found = self.connection.execute(INTERVAL, [every, period]).fetchone()
        assert found
        return int(found[0])
