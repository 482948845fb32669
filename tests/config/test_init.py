"""`manage.py init` writes the settings module by which Wakeful stands beside a project."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import CommandError, call_command

from config import settings as ours
from config.beside import apps_of, settings_of
from config.env import Env
from config.routing import OursAreInDefault
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
    assert made["STORAGES"]["staticfiles"] == ours.STORAGES["staticfiles"]
    assert made["STATICFILES_DIRS"] == [*ours.STATICFILES_DIRS, project / "assets"]
    # A login writes the hash again in the first of them, and the project must be able to read it.
    assert made["PASSWORD_HASHERS"][0].endswith("MD5PasswordHasher")
    assert made["PASSWORD_HASHERS"][1] == "config.web.passwords.BoundedHasher"
    assert "CELERY_TASK_ALWAYS_EAGER" not in made
    assert made["SECRET_KEY"] == ours.SECRET_KEY


def test_settings_that_are_a_package_get_the_module_beside_it(project: Path) -> None:
    (project / "settings").mkdir()
    (project / "settings.py").rename(project / "settings/production.py")
    (project / "settings/__init__.py").write_text("from .production import *")

    assert f"Written: {project / 'wakeful.py'}\n" in init(project)
    call_command("init", f"{project.name}.settings.production", stdout=StringIO())
    assert (project / "settings/wakeful.py").exists()
    for name in (f"{project.name}.wakeful", f"{project.name}.settings.wakeful"):
        assert import_module(name).AUTH_USER_MODEL == "office.Member"

    (project / "settings/empty.py").touch()
    with pytest.raises(CommandError, match="has no INSTALLED_APPS"):
        call_command("init", f"{project.name}.settings.empty")


def test_what_is_of_a_site_is_not_taken(project: Path) -> None:
    (project / "settings.py").write_text(
        (project / "settings.py").read_text()
        + "PREPEND_WWW = USE_X_FORWARDED_HOST = USE_THOUSAND_SEPARATOR = True\nAPPEND_SLASH = False\nFORCE_SCRIPT_NAME = '/shop'\n"
        "SECRET_KEY_FALLBACKS = ['old']\nMEDIA_URL = '/files/'\n"
    )
    taken = settings_of(import_module(f"{project.name}.settings"), vars(ours))

    assert taken["MEDIA_URL"] == "/files/"
    for name in ("PREPEND_WWW", "USE_X_FORWARDED_HOST", "APPEND_SLASH", "FORCE_SCRIPT_NAME", "SECRET_KEY_FALLBACKS"):
        assert name not in taken
    assert "USE_THOUSAND_SEPARATOR" not in taken


def test_a_project_has_a_celery_app_of_its_own_which_ours_does_not_use(project: Path) -> None:
    (project / "__init__.py").write_text(
        "from celery import Celery\napp = Celery('shop', broker='redis://shop.invalid:6379/0')\n"
    )
    file = project / "settings.py"
    file.write_text(file.read_text().replace('    "office",\n', "").replace("office.Member", "auth.User"))
    init(project)
    code = (
        "import config, django, threading; django.setup(); from celery import current_app; from runs.network import broker\n"
        "found = [current_app.main, broker.connection().as_uri()]\n"
        "one = threading.Thread(target=lambda: found.append(current_app.main)); one.start(); one.join(); print(*found)"
    )
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": f"{project.name}.wakeful",
        "CELERY_BROKER_URL": "redis://ours.invalid:6379/3",
    }
    env["PYTHONPATH"] = os.pathsep.join((str(project.parent), str(ROOT)))

    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=project.parent, capture_output=True, text=True)

    assert done.stdout.split() == ["wakeful", "redis://:**@ours.invalid:6379/3", "wakeful"], done.stderr


def test_it_is_there_also_where_the_settings_of_the_project_are_set(project: Path) -> None:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": f"{project.name}.settings", "PYTHONPATH": str(project.parent)}
    words = [sys.executable, str(ROOT / "manage.py"), "init", f"{project.name}.settings"]

    done = subprocess.run(words, env=env, cwd=project.parent, capture_output=True, text=True)

    assert f"Written: {project / 'wakeful.py'}" in done.stdout, done.stderr


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


@pytest.mark.parametrize("is_ours", [False, True])
def test_an_app_library_is_the_projects_without_that_of_wakeful(is_ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.routing.apps.is_installed", lambda name: is_ours)

    assert OursAreInDefault().allow_migrate("archive", "library") is (False if is_ours else None)
    assert OursAreInDefault().allow_migrate("archive", "runs") is False


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


def test_a_second_factor_that_the_console_does_not_ask_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Past the fixture `settings`, by which Django would make its apps, and an admin site without pages, again.
    monkeypatch.setattr(settings, "INSTALLED_APPS", [*settings.INSTALLED_APPS, "mfa.apps.MfaConfig"])

    assert [m.msg for m in run_checks(tags=["settings"]) if m.id == "wakeful.W041"] == [
        "mfa is installed, but the console lets people in by their password alone."
    ]
