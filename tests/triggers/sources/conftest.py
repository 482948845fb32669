import pytest

from triggers.sources import backlog


@pytest.fixture(autouse=True)
def fresh_backlog_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "_backlog", backlog.NEVER)
