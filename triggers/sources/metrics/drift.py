from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, QuerySet

from agents import registry
from agents.on import DriftTrigger, name_of
from runs.db.sql import execute
from triggers.models import MetricDetector
from triggers.sources.kind import register
from triggers.sources.metrics.detector import duration
from triggers.sources.metrics.difference import MOST_ROWS, Rows, Unusable, difference_of, rows_of
from triggers.sources.metrics.metric import Metric, MetricReader, MetricSettings, now
from triggers.sources.metrics.samples import Sample
from triggers.sources.metrics.sql_query import SqlQuery
from triggers.sources.metrics.sql_query import rows_of as rows_of_query
from triggers.sources.runner import Assignment, Reader, SourceError
from triggers.sources.settings import InvalidSettings, setting, whole_number

WATCH = "difference"  # the detector of every source of drift
CALLABLE = "callable "  # before the name of a function that the code declares
READ_ONLY = "SET TRANSACTION READ ONLY"
TIMEOUT = "SELECT set_config('statement_timeout', %s, true)"


@dataclass(frozen=True, kw_only=True)
class DriftSettings(MetricSettings):
    """The two states, and when their difference becomes an event."""

    expected: str = setting(
        "",
        "Expected",
        "A SELECT whose first column is the key of a row, or a function that the code declares with on.drift().",
    )
    actual: str = setting("", "Actual", "The same of the state as it is.")
    hold: str = setting(
        "0s", "For", "How long they must differ before an episode opens, such as 5m. 0s: at once.", check=duration
    )
    seconds: int = setting(10, "Time-out", "Seconds after which a query is stopped.", check=whole_number(1, 20))

    def __post_init__(self) -> None:
        if empty := [name for name in ("expected", "actual") if not getattr(self, name).strip()]:
            raise InvalidSettings(dict.fromkeys(empty, "must not be empty"))


@register
class Drift(Metric[DriftSettings]):
    name = "drift"
    label = "Drift of a state"
    help_text = "Compares two states, such as what should be there and what is: their difference is an event that opens and closes."
    settings_class = DriftSettings
    docs = "metrics#drift-of-a-state"
    noun = "drift"
    secret_label = "Connection string"  # noqa: S105  (a label)
    setup = (
        "In code, declare on.drift(expected, actual) on an agent, with two functions that return rows: nothing else is to be set up.",
        "For two queries on a PostgreSQL database, create a role that may read their tables and nothing else, and enter the connection "
        "string as the secret: postgresql://role:password@host:5432/database.",
        "The first column of each query is the key of a row; the others are compared.",
    )

    def check(self, settings: Any) -> None:
        cleaned = self.clean_settings(settings)
        declared = functions()
        for name in ("expected", "actual"):
            state = getattr(cleaned, name)
            if state.startswith(CALLABLE) and state not in declared:
                raise InvalidSettings({name: "is no function that an agent declares with on.drift()"})

    def clean_secret(self, secret: str) -> str:
        return SqlQuery().clean_secret(secret)

    def connect(self, assignment: Assignment[DriftSettings]) -> Reader:
        settings = assignment.settings
        return DriftReader(assignment, target=f"{settings.expected} {settings.actual}", noun=self.noun)


class DriftReader(MetricReader):
    """The size of the difference is a sample; its rows go into the events."""

    def samples(self) -> Sequence[Sample]:
        found = difference_of(self._rows("expected"), self._rows("actual"))
        return [Sample(at=now(), value=float(found.size), detail=found.detail)]

    def close(self) -> None:
        connection.close()

    def _keep(self, samples: Sequence[Sample]) -> None:
        watch(self.source.source_id, hold=self.settings.hold)
        super()._keep(samples)

    def _rows(self, name: str) -> Rows:
        state: str = getattr(self.settings, name)
        try:
            return rows_of(self._called(state) if state.startswith(CALLABLE) else self._queried(state))
        except Unusable as error:
            raise SourceError(f"The {name} state cannot be compared: {error}.", remedy="Correct it.") from None

    def _called(self, state: str) -> Any:
        if state not in (known := functions()):
            raise SourceError(
                f"No agent declares the {state}.", remedy="Restart the sources process with the code that declares it."
            )
        with transaction.atomic():
            execute(READ_ONLY)
            execute(TIMEOUT, [f"{self.settings.seconds}s"])
            found = known[state]()
            if isinstance(found, (str, bytes, dict)) or not hasattr(found, "__iter__"):
                return found
            return list(islice(found.iterator() if isinstance(found, QuerySet) else found, MOST_ROWS + 1))

    def _queried(self, query: str) -> list[tuple[Any, ...]]:
        if not self.assignment.secret:
            raise SourceError("It has no connection string.", remedy="Enter it as the secret of the source.")
        return rows_of_query(self.assignment.secret, query, seconds=self.settings.seconds, most=MOST_ROWS + 1)


def functions() -> dict[str, Callable[[], Any]]:
    """The functions that agents declare with on.drift(), by the name that stands in the settings."""
    declared = [
        trigger
        for agent in registry.agents_in_code()
        for trigger in agent.triggers
        if isinstance(trigger, DriftTrigger)
    ]
    return {name_of(state): state for one in declared for state in (one.expected, one.actual) if callable(state)}


def watch(source_id: UUID, *, hold: str) -> None:
    """Arm the detector of a new source of drift. One that an operator has disarmed stays so."""
    ours = MetricDetector.objects.filter(source_id=source_id, name=WATCH)
    armed = ours.order_by(F("disarmed_at").desc(nulls_first=True)).first()
    if armed is None:
        MetricDetector.objects.create(source_id=source_id, name=WATCH, settings={"hold": hold})
    elif armed.settings.get("hold") != hold:
        MetricDetector.objects.filter(pk=armed.pk).update(settings={**armed.settings, "hold": hold})
