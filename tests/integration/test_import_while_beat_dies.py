"""`import_from beat --on` while Beat is killed at any moment, and at each point between its commits: every nominal time since the other
Beat stopped is one event, or was missed before a later one that fired."""

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

import pytest
from django.core.serializers import serialize
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from tests.support.beside import Shop
from tests.support.stack import SHOP, Stack, StackMaker, eventually
from tests.support.stack import database_url as url_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
EVERY = timedelta(seconds=2)
POINTS = (
    "before_settle_commit=kill",
    "before_tick_commit=kill@2",
    "after_tick_commit=kill",
    "before_tick_commit=kill",
    "",
)
EVENTS = """
SELECT data ->> 'schedule' AS name, time AS first, time AS last, 'fired' AS reason FROM triggers_event WHERE type = 'schedule.fired'
UNION ALL
SELECT p.name, k.first, k.last, k.reason FROM triggers_skip k
  JOIN triggers_schedule s ON s.id = k.schedule_id JOIN django_celery_beat_periodictask p ON p.id = s.task_id
"""
UNTIL = """
SELECT p.name, s.accounted_until FROM triggers_schedule s JOIN django_celery_beat_periodictask p ON p.id = s.task_id
WHERE p.name LIKE 'task-%%' AND p.enabled AND NOT s.stale
"""


def test_each_time_is_fired_once_however_often_beat_dies_around_the_import(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    stack = make_stack(env=SHOP, agents=True)
    dump, since = tmp_path / "periodic.json", {}
    import_it = ("import_from", "beat", str(dump), "--agent", "effect")
    # Half of them were imported to look at, hours ago; Beat has settled them.
    write(dump, {f"task-{number}": datetime.now(UTC) - timedelta(hours=3) for number in range(6)})
    with being_killed(stack):
        stack.manage(*import_it)
        time.sleep(2)
        now = datetime.now(UTC).replace(microsecond=0)  # a dump has milliseconds
        since = {f"task-{number}": now - number * EVERY / 4 for number in range(12)}
        write(dump, since)
        stack.manage(*import_it, "--on")
        time.sleep(5)
        stack.manage(*import_it, "--on")
        time.sleep(3)

    beat = stack.start("beat")
    now = datetime.now(UTC)
    eventually(lambda: all(row["accounted_until"] > now for row in stack.query(UNTIL)))
    assert beat.stop() == 0

    until = {row["name"]: row["accounted_until"] for row in stack.query(UNTIL)}
    assert until.keys() == since.keys()
    reasons = by_time(stack)
    for name, last_run_at in since.items():
        wanted = list(times(last_run_at + EVERY, until[name]))
        ways = {at: reasons[name].pop(at, []) for at in wanted}
        assert all(way in (["fired"], ["missed"]) for way in ways.values()), story(
            name, last_run_at, ways, reasons[name]
        )
        missed_last = [at for at in wanted if ways[at] == ["missed"] and ways.get(at + EVERY) != ["missed"]]
        assert all(ways[at + EVERY] == ["fired"] for at in missed_last), story(name, last_run_at, ways, reasons[name])
        assert not [at for at, way in reasons[name].items() if "fired" in way], story(
            name, last_run_at, ways, reasons[name]
        )


def test_what_the_other_beat_fired_last_is_followed_by_the_next(make_stack: StackMaker, tmp_path: Path) -> None:
    """Its real Beat, stopped by SIGTERM as the guide has it, on a database of its own."""
    stack = make_stack(env=SHOP, agents=True)
    stack.query("CREATE DATABASE shop_of_import")
    shop = Shop(tmp_path / "shop", stack)
    shop.env |= {
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "SHOP_DATABASE": url_of(stack.database_url, "shop_of_import"),
    }
    try:
        shop.python("manage.py", "migrate", "-v0")
        shop.python("-c", TICKS)
        with shop.running("beat", "-l", "INFO"):
            eventually(lambda: shop.log("beat").count("Sending due task") >= 6)
        dump = tmp_path / "periodic.json"
        dump.write_text(shop.python("manage.py", "dumpdata", "django_celery_beat"))
    finally:
        stack.query("DROP DATABASE shop_of_import WITH (FORCE)")
    rows = [row["fields"] for row in json.loads(dump.read_text()) if row["model"].endswith(".periodictask")]
    since = {row["name"]: datetime.fromisoformat(row["last_run_at"]) for row in rows if row["name"].startswith("task-")}
    assert len(since) == 2

    with being_killed(stack):
        stack.manage("import_from", "beat", str(dump), "--agent", "effect", "--on")
        time.sleep(3)
    stack.start("beat")
    eventually(lambda: all(by_time(stack)[name] for name in since))

    for name, last_run_at in since.items():
        reasons = by_time(stack)[name]
        fired = sorted(at for at, way in reasons.items() if "fired" in way)
        assert last_run_at < fired[0] and not (fired[0] - last_run_at) % EVERY
        assert all(reasons[at] == ["missed"] for at in times(last_run_at + EVERY, fired[0] - EVERY))


TICKS = """
import django; django.setup()
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every = IntervalSchedule.objects.create(every=2, period="seconds")
for name in ("task-0", "task-1"):
    PeriodicTask.objects.create(name=name, task="billing.tasks.charge", args='["tick"]', interval=every)
"""


def write(dump: Path, since: dict[str, datetime]) -> None:
    """What the project's `manage.py dumpdata django_celery_beat` gives."""
    every = IntervalSchedule(pk=1, every=EVERY.seconds, period="seconds")
    tasks = [
        PeriodicTask(pk=pk, name=name, task="shop.tick", interval_id=1, last_run_at=at, date_changed=at)
        for pk, (name, at) in enumerate(since.items(), 1)
    ]
    dump.write_text(serialize("json", [every, *tasks]))


@contextmanager
def being_killed(stack: Stack) -> Iterator[None]:
    """A Beat that dies at one point after the other, and is started again each time."""
    stop = Event()

    def kill_it() -> None:
        for point in cycle(POINTS):
            beat = stack.start("beat", env={"WAKEFUL_FAILPOINTS": point}, wait=False)
            patience = time.monotonic() + (2 if point else random.uniform(0.2, 1))
            while beat.is_alive() and time.monotonic() < patience and not stop.is_set():
                time.sleep(0.02)
            beat.kill()
            if stop.is_set():
                return

    killing = Thread(target=kill_it)
    killing.start()
    try:
        yield
    finally:
        stop.set()
        killing.join()


def by_time(stack: Stack) -> dict[str, dict[datetime, list[str]]]:
    """What became of each nominal time of a schedule, by its name."""
    found: dict[str, dict[datetime, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in stack.query(EVENTS):
        for at in times(row["first"], row["last"]):
            found[row["name"]][at].append(row["reason"])
    return found


def story(name: str, last_run_at: datetime, *ways: dict[datetime, list[str]]) -> str:
    return "\n".join(
        [f"{name} since {last_run_at}", *(f"{at}: {way}" for some in ways for at, way in sorted(some.items()))]
    )


def times(first: datetime, last: datetime) -> Iterator[datetime]:
    while first <= last:
        yield first
        first += EVERY
