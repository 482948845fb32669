"""The checkpoints of a run pass LangGraph's suite for checkpointers, whole, also those that a replay has read from the journal."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

conformance = pytest.importorskip("langgraph.checkpoint.conformance")

from agents.graphs.saver import JournalSaver
from agents.journal.engine import Journal
from agents.journal.in_memory import MemoryStore

pytestmark = pytest.mark.django_db
SUITE = 81
MANY = 100_000


class Rereading(JournalSaver):
    """Made from its journal before each answer, as after a crash."""

    def _again(self) -> None:
        for kept in (self.storage, self.writes, self.blobs):
            kept.clear()
        self._number = 0
        self._read()

    def get_tuple(self, config: Any) -> Any:
        self._again()
        return super().get_tuple(config)

    def list(self, config: Any, **how: Any) -> Any:
        self._again()
        return super().list(config, **how)


@pytest.mark.parametrize("kind", [JournalSaver, Rereading])
def test_the_suite_of_langgraph_passes_in_full(kind: type[JournalSaver]) -> None:
    def made() -> JournalSaver:
        store = MemoryStore("walker", {}, {})
        store.max_entries = MANY
        return kind(Journal(store), "graph#1", "thread-of-the-run")

    @conformance.checkpointer_test(name="JournalSaver")  # type: ignore[misc]
    async def registered() -> AsyncIterator[JournalSaver]:
        yield made()

    report = asyncio.run(conformance.validate(registered))

    failures = [failure for result in report.results.values() for failure in result.failures]
    assert not failures
    assert sum(result.tests_passed for result in report.results.values()) == SUITE
    assert all(result.detected and result.passed for result in report.results.values())
