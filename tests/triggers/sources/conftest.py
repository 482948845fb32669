import pytest

from triggers.sources import backlog
from triggers.sources.webhooks import endpoint


@pytest.fixture(autouse=True)
def fresh_backlog_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "_backlog", backlog.NEVER)


@pytest.fixture(autouse=True)
def no_endpoint_is_known() -> None:
    endpoint.kept.clear()
