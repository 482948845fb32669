from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.list_server import ListServer, serving_lists
from triggers.sources.kind import kinds
from triggers.sources.polling.poller import Poller, PollingReader
from triggers.sources.runner import Assignment, Batch


@pytest.fixture
def site(settings: Any) -> Iterator[ListServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    with serving_lists() as site:
        yield site


class Polling:
    """A source that is polled as the process does it: connect, read, record, confirm."""

    def __init__(self, kind: str, *, secret: str = "", **settings: Any) -> None:
        runner = kinds()[kind]
        assert isinstance(runner, Poller)
        self.runner = runner
        self.settings = runner.clean_settings(settings)
        self.secret = secret
        self.position: Any = None

    def reader(self) -> PollingReader:
        assignment: Assignment[Any] = Assignment(
            slug="polled", settings=self.settings, secret=self.secret, position=self.position
        )
        reader = self.runner.connect(assignment)
        assert isinstance(reader, PollingReader)
        return reader

    def poll(self) -> Batch:
        """The next poll, although it is not due, in a new process."""
        if self.position:
            self.position = {**self.position, "due_at": datetime.now(UTC).isoformat()}
        reader = self.reader()
        try:
            batch = reader.read(0.1)
            self.position = batch.position
            reader.confirm(batch)
            return batch
        finally:
            reader.close()
