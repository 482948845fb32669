"""An app of a project that has the label of one of Wakeful's is named, with the ways out."""

from pathlib import Path
from types import ModuleType

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from config import settings as ours
from config.beside import settings_of
from config.labels import require_free_labels
from tests.support.stack import ROOT


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The package of a project that has an app `runs`; by another name in each test, as modules are imported once."""
    name = f"market_{request.node.name[5:20]}"
    for package in (name, f"{name}/runs", f"{name}/triggers"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / name / "triggers/apps.py").write_text(
        f"from django.apps import AppConfig\nclass Free(AppConfig):\n    name = '{name}.triggers'\n    label = '{name}_triggers'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_an_app_with_a_label_of_wakefuls_is_named_with_the_ways_out(market: str) -> None:
    project = ModuleType("market.settings")
    project.INSTALLED_APPS = [f"{market}.triggers", f"{market}.runs"]  # type: ignore[attr-defined]

    with pytest.raises(
        ImproperlyConfigured, match=rf"^{market}.runs in INSTALLED_APPS of market.settings has the label 'runs'"
    ) as said:
        settings_of(project, vars(ours))

    assert f"without=['{market}.runs']" in str(said.value)
    assert "an-app-with-a-label-of-wakefuls" in str(said.value)
    assert f"{market}.triggers" in settings_of(project, vars(ours), without=[f"{market}.runs"])["INSTALLED_APPS"]


def test_it_is_named_in_wakeful_apps_too(market: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^{market}.runs in WAKEFUL_APPS has the label"):
        require_free_labels([f"{market}.runs"], "WAKEFUL_APPS")

    require_free_labels(["agents.library", "shop", f"{market}.triggers.apps.Free"], "WAKEFUL_APPS")


def test_init_names_it_and_writes_nothing_unless_it_is_left_out(market: str, tmp_path: Path) -> None:
    settings = (
        (ROOT / "tests/userapps/office/project.py").read_text().replace('    "office",\n', f'    "{market}.runs",\n')
    )
    (tmp_path / market / "settings.py").write_text(settings.replace("office.Member", "auth.User"))

    with pytest.raises(CommandError, match=r"has the label 'runs'.*--without"):
        call_command("init", f"{market}.settings")
    assert not (tmp_path / market / "wakeful.py").exists()

    call_command("init", f"{market}.settings", "--without", f"{market}.runs")
    assert f"without=['{market}.runs']" in (tmp_path / market / "wakeful.py").read_text()
