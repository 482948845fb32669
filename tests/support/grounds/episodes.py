"""Numbers and states that go out of the ordinary, further, and back: one event for each transition of each episode."""

import json
from abc import abstractmethod
from collections import Counter
from pathlib import Path

import psycopg

from tests.support.grounds.ground import Ground
from tests.support.list_server import Page, serving_lists
from tests.support.stack import Stack, eventually
from triggers.models import MetricDetector, MetricSeries
from triggers.sources.edit import create_source
from triggers.sources.metrics.arm import arm, try_on
from triggers.sources.secrets import add_secret

ROUNDS = 2
THRESHOLD = {"above": "10", "margin": "2", "step": "5"}
Step = tuple[str, float]  # type of the event and its value


class Episodes(Ground):
    """Each step is a state, and the value of its event; a state without a value is no transition."""

    agent = "episodes"
    slug = ""
    steps: tuple[Step, ...] = (("metric.opened", 11), ("metric.worsened", 40), ("metric.closed", 3))

    @abstractmethod
    def be(self, value: float) -> None:
        """From now on a sample has this value."""

    def move(self, stack: Stack) -> None:
        for number in range(ROUNDS):
            for type, value in self.steps:
                self.be(value)
                eventually(lambda: self._recorded(stack).count((type, value)) > number)  # noqa: B023  (called at once)

    def is_complete(self, stack: Stack) -> bool:
        return len(self._recorded(stack)) >= ROUNDS * len(self.steps)

    def check(self, stack: Stack) -> None:
        expected = [*self.steps] * ROUNDS
        assert self._recorded(stack) == expected
        seen = [(one["type"], one["value"]) for one in self.results(stack) if one["source"] == self.slug]
        assert Counter(seen) == Counter(expected)
        episodes = stack.query(
            """SELECT episode.closed_at IS NOT NULL AS is_closed, jsonb_array_length(event_ids) AS events
               FROM triggers_metricepisode episode JOIN triggers_metricdetector detector ON detector.id = episode.detector_id
               JOIN triggers_source source ON source.id = detector.source_id WHERE source.slug = %s""",
            self.slug,
        )
        assert episodes == [{"is_closed": True, "events": len(self.steps)}] * ROUNDS
        with stack.orm():
            self._check_replay()

    def _check_replay(self) -> None:
        """By the stored series, these transitions and no others are due."""
        [detector] = MetricDetector.objects.filter(source__slug=self.slug)
        [series] = MetricSeries.objects.filter(source__slug=self.slug)
        replayed = try_on(series, detector.name, detector.settings, days=1).transitions
        found = [
            (f"{type.partition('.')[0]}.{one.change}", one.value)
            for one, (type, _) in zip(replayed, self.steps * ROUNDS, strict=True)
        ]
        assert found == [*self.steps] * ROUNDS

    def _recorded(self, stack: Stack) -> list[Step]:
        rows = stack.query(
            """SELECT event.type, (event.data->>'value')::float8 AS value FROM triggers_event event
               JOIN triggers_source source ON source.id = event.source_id WHERE source.slug = %s ORDER BY event.seq""",
            self.slug,
        )
        return [(row["type"], row["value"]) for row in rows]


class NumberInJson(Episodes):
    """A number that a web server returns."""

    slug = "load"

    @property
    def env(self) -> dict[str, str]:
        return {"WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8"}

    def prepare(self, stack: Stack) -> None:
        self.site = self.enter_context(serving_lists())
        self.be(0)
        settings = {"url": self.site.url("/load"), "value_path": "data.load", "every": "10s"}
        with stack.orm():
            arm(
                create_source(self.slug, kind="json_number", settings=settings, by="test"),
                "threshold",
                THRESHOLD,
                by="test",
            )

    def be(self, value: float) -> None:
        self.site.pages["/load"] = Page(json.dumps({"data": {"load": value}}).encode())


class NumberOfQuery(Episodes):
    """A number that a query finds."""

    slug = "queue"

    def prepare(self, stack: Stack) -> None:
        self.database = self.enter_context(psycopg.connect(stack.database_url, autocommit=True))
        self.database.execute("CREATE TABLE ground_queue AS SELECT 0::float8 AS length")
        with stack.orm():
            settings = {"query": "SELECT length FROM ground_queue", "every": "10s"}
            source = create_source(self.slug, kind="sql_query", settings=settings, by="test")
            add_secret(source, stack.database_url, by="test")
            arm(source, "threshold", THRESHOLD, by="test")

    def be(self, value: float) -> None:
        self.database.execute("UPDATE ground_queue SET length = %s", [value])


class Drift(Episodes):
    """A state drifts away from what is expected: so many of its servers are missing."""

    slug = "drift"
    steps = (("drift.opened", 1), ("drift.worsened", 4), ("drift.closed", 0))

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.state = folder / "state.json"
        self.be(0)

    @property
    def env(self) -> dict[str, str]:
        return {"GROUND_STATE": str(self.state)}

    def be(self, value: float) -> None:
        written = self.folder / "written"
        written.write_text(json.dumps(dict.fromkeys("abcd"[int(value) :], 1)))
        written.replace(self.state)
