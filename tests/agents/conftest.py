import pytest

from agents import registry


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten afterwards."""
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
