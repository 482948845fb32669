import pytest

from agents.tools import toolbox


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolbox with the tools of the test alone."""
    monkeypatch.setattr(toolbox, "_tools", {})
    monkeypatch.setattr(toolbox, "_files", frozenset)
    monkeypatch.setattr(toolbox, "_find_built_in", lambda: None)
