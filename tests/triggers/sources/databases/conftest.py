from collections.abc import Iterator

import pytest

from tests.support.foreign import ForeignDatabase
from tests.support.servers import TestServers


@pytest.fixture
def foreign(servers: TestServers) -> Iterator[ForeignDatabase]:
    with ForeignDatabase(servers.database_url) as database:
        yield database
