"""`manage.py init` writes the settings module by which Wakeful stands beside a project."""

import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command

from config import settings as ours
from config.beside import apps_of, settings_of
from config.env import Env
from tests.support.stack import ROOT


class Replicas:
    """A router of a team."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A package with the settings of a project, by another name in each test: modules are imported once."""
    folder = tmp_path / f"{request.node.name[5:25]}x"
    folder.mkdir()
    (folder / "__init__.py").touch()
    shutil.copy(ROOT / "tests/userapps/office/project.py", folder / "settings.py")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def init(folder: Path, *arguments: str) -> str:
    said = StringIO()
    call_command("init", f"{folder.name}.settings", *arguments, stdout=said)
    return said.getvalue()


def test_the_module_is_written_and_takes_what_is_the_projects(project: Path) -> None:
    said = init(project)

    assert f"Written: {project / 'wakeful.py'}" in said
    assert "Apps: django.contrib.sites, office\n" in said
    assert "Users: office.Member" in said
    made: dict[str, Any] = {"__name__": f"{project.name}.wakeful"}
    exec((project / "wakeful.py").read_text(), made)
    assert made["INSTALLED_APPS"] == [*ours.INSTALLED_APPS, "django.contrib.sites", "office"]
    assert made["AUTH_USER_MODEL"] == "office.Member"
    assert made["DATABASES"]["default"]["OPTIONS"] == ours.DATABASES["default"]["OPTIONS"]
    assert made["DATABASES"]["archive"]["NAME"] == ":memory:"
    assert made["STORAGES"]["staticfiles"]["BACKEND"].endswith(".StaticFilesStorage")
    # A login writes the hash anew in the first of them, and the project must be able to read it.
    assert made["PASSWORD_HASHERS"][0].endswith("MD5PasswordHasher")
    assert made["PASSWORD_HASHERS"][1] == "config.web.passwords.BoundedHasher"
    assert "CELERY_TASK_ALWAYS_EAGER" not in made
    assert made["SECRET_KEY"] == ours.SECRET_KEY


def test_nothing_is_overwritten(project: Path) -> None:
    (project / "wakeful.py").write_text("# mine")

    with pytest.raises(CommandError, match="nothing was written"):
        init(project)

    assert (project / "wakeful.py").read_text() == "# mine"
    init(project, "--name", "agents_of_ours")
    assert (project / "agents_of_ours.py").exists()


def test_another_database_is_refused_with_the_other_way(project: Path) -> None:
    file = project / "settings.py"
    file.write_text(file.read_text().replace("django.db.backends.postgresql", "django.db.backends.mysql"))

    with pytest.raises(CommandError, match="must be PostgreSQL"):
        init(project)


@pytest.mark.parametrize("named", ["no.such.settings", "config.settings", ""])
def test_what_are_no_settings_of_a_project_is_refused(named: str) -> None:
    with pytest.raises(CommandError):
        call_command("init", named)


def test_apps_that_wakeful_has_by_another_entry_are_left_out() -> None:
    theirs = [
        "django.contrib.admin",
        "django.contrib.auth.apps.AuthConfig",
        "rest_framework",
        "orders.apps.OrdersConfig",
    ]

    assert apps_of(theirs, ours.INSTALLED_APPS) == ["orders.apps.OrdersConfig"]


def test_an_engine_made_of_djangos_for_postgresql_is_kept(project: Path) -> None:
    file = project / "settings.py"
    file.write_text(
        file.read_text().replace("django.db.backends.postgresql", "django_prometheus.db.backends.postgresql")
    )
    module = __import__(f"{project.name}.settings", fromlist=["settings"])

    made = settings_of(module, vars(ours))

    assert made["DATABASES"]["default"]["ENGINE"] == "django_prometheus.db.backends.postgresql"


def test_the_url_may_be_that_of_postgis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgis://app@127.0.0.1/shop")

    assert Env().postgres("DATABASE_URL", "")["ENGINE"] == "django.contrib.gis.db.backends.postgis"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"USE_TZ": False}, "wakeful.E040"),
        ({"DATABASE_ROUTERS": [f"{__name__}.Replicas", "config.routing.OursAreInDefault"]}, "wakeful.E042"),
        ({"WAKEFUL_PROJECT_DATABASE": {"NAME": "another", "HOST": "db", "PORT": 5432}}, "wakeful.W040"),
    ],
)
def test_what_does_not_fit_is_named_with_a_remedy(settings: Any, wrong: dict[str, Any], expected: str) -> None:
    for name, value in wrong.items():
        setattr(settings, name, value)

    found = [message for message in run_checks(tags=["settings"]) if message.id == expected]

    assert len(found) == 1
    assert found[0].hint
