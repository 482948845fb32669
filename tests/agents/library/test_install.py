"""WAKEFUL_LIBRARY installs agents of the library by their names."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from agents import registry
from agents.apps import install
from config.settings import LIBRARY


@pytest.mark.parametrize(
    "name",
    [
        *LIBRARY.split(", "),
        "reminder",
        "notes-keeper",
        "backup-checker",
        "repository-tidier",
        "ci-watcher",
        "mail-triage",
        "calendar-brief",
    ],
)
def test_an_agent_is_installed_by_its_name(name: str) -> None:
    install(name)

    assert registry.get(name).name == name


@pytest.mark.parametrize("name", ["daily-digests", "models", "apps"])
def test_a_name_that_is_none_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"there is no agent .* it has anomaly-explainer, approval-chaser"):
        install(name)
