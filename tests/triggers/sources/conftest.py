import pytest
from hypothesis import settings

from triggers import accept

# A busy machine is no failure: what a test may take is pytest-timeout's business.
settings.register_profile("wakeful", deadline=None)
settings.load_profile("wakeful")


@pytest.fixture(autouse=True)
def fresh_backlog_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept, "_backlog", (float("-inf"), {}))
