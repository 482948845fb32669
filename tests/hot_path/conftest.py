import pytest

from runs import claim
from tests.support.durable import lab  # noqa: F401  (a fixture)


@pytest.fixture(autouse=True)
def young_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the tests before took, a claim waits for the disk."""
    monkeypatch.setattr(claim, "LAZY_AFTER", float("inf"))
