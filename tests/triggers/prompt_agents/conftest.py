import pytest

from agents import registry, tool
from agents.tools import toolbox


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten afterwards."""
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolbox with one tool."""
    monkeypatch.setattr(toolbox, "_tools", {})
    monkeypatch.setattr(toolbox, "_files", frozenset)
    monkeypatch.setattr(toolbox, "_find_built_in", lambda: None)

    @tool(effect="read")
    def failed_runs() -> list[str]:
        """The failed runs."""
        return ["billing: ConnectionError"]
