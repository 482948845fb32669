"""Beside a project, by a settings module: its users are named by an e-mail address, and its models, routers, files and admin pages are as
they are. See tests/userapps/office."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.servers import surroundings
from tests.support.stack import ROOT

# Slow, because it migrates an empty database: what refers to the users is made by migrations, too.
pytestmark = pytest.mark.chaos
URL = urlsplit(os.environ.get("DATABASE_URL", ""))
MAIL = "admin@localhost"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a script finds that visits the whole installation; see tests.support.as_a_member."""
    with psycopg.connect(URL.geturl(), autocommit=True) as server:
        server.execute("CREATE DATABASE office")
        try:
            yield _visit(tmp_path_factory.mktemp("media"))
        finally:
            server.execute("DROP DATABASE office WITH (FORCE)")


def _visit(media: Path) -> dict[str, Any]:
    ours = {
        name: value for name, value in os.environ.items() if name.startswith(("WAKEFUL_", "REDIS", "CELERY", "SECRET"))
    }
    where = {
        "DATABASE_URL": URL._replace(path="/office").geturl(),
        "DJANGO_SETTINGS_MODULE": "office.wakeful",
        "OFFICE_MEDIA": str(media),
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tests/userapps"), str(ROOT))),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.as_a_member"],
        env={**surroundings(), **ours, **where},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_stack_prepares_itself_and_makes_one_account(seen: dict[str, Any]) -> None:
    first, again = seen["prepared"]

    assert f"user: {MAIL}  password: (WAKEFUL_ADMIN_PASSWORD)" in first
    assert again == first


def test_wrong_names_and_passwords_are_refused_and_the_right_one_logs_in(seen: dict[str, Any]) -> None:
    assert seen["login"] == [200, 200, 302]
    assert [f"admin:{MAIL}", "login"] in seen["audit"]
    assert ["anonymous", "login failed"] in seen["audit"]


def test_every_page_of_the_console_opens(seen: dict[str, Any]) -> None:
    assert len(seen["pages"]) > 150
    assert {name for name, status in seen["pages"].items() if name.endswith("changelist") and status != 200} == set()
    # Pages to add or to delete what people do not make; the file of an event that has none.
    assert set(seen["pages"].values()) <= {200, 403, 404}
    assert seen["pages"]["admin:office_member_change"] == 200
    assert seen["sidebar"] > 0


def test_the_password_is_required_again_before_an_account_is_changed_by_whatever_page(seen: dict[str, Any]) -> None:
    assert len(seen["asked"]) == 7
    assert set(seen["asked"].values()) == {"/admin/password-again/"}
    assert seen["again"] == 302


def test_messages_reach_the_inbox_of_an_address(seen: dict[str, Any]) -> None:
    assert seen["readers"] == [True, False]
    assert "recipient unread (inbox:admin)" in seen["doctor"]
    assert "recipient read" not in seen["doctor"]


def test_health_says_what_is_true(seen: dict[str, Any]) -> None:
    status, ready = seen["ready"]

    assert (status, ready["database"], ready["migrations"]) == (200, "ok", "ok")
    assert "unknown-sign" not in ready["problems"]
    assert "unread-inbox" in ready["problems"]
    assert seen["metrics"] == 200


def test_files_are_taken_by_pages_of_the_team_from_people_who_may_enter_alone(seen: dict[str, Any]) -> None:
    assert seen["uploads"] == [302, 400, 302]  # made; refused; to the login, and nothing is read
    assert seen["stored"] == ["Dear customer"]
    assert ["admin:admin@localhost", "create"] in seen["audit"]  # the order: pages of the team have audit entries, too


def test_the_pages_of_the_team_look_like_the_console(seen: dict[str, Any]) -> None:
    assert len(seen["inputs"]) == 1
    assert "rounded" in seen["inputs"][0]


def test_no_migration_is_wanted_under_the_default_key_of_the_project(seen: dict[str, Any]) -> None:
    assert seen["settings"]["DEFAULT_AUTO_FIELD"] == "django.db.models.AutoField"
    assert seen["migrations"] == "No changes detected\n"


def test_the_settings_of_the_project_are_taken_but_for_those_of_its_own_processes(seen: dict[str, Any]) -> None:
    taken = seen["settings"]

    assert (taken["LANGUAGE_CODE"], taken["TIME_ZONE"], taken["SITE_ID"]) == ("de", "Europe/Vienna", "1")
    assert taken["OFFICE_HOURS"] == "(9, 17)"
    assert taken["DATABASE_ROUTERS"].startswith("['config.routing.OursAreInDefault', 'office.")
    assert seen["eager"] is False
