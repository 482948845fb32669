"""The wheel has the rooms below `wakeful`, beside packages that have their names."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from django.core.management import CommandError, call_command

from deploy.wheel import namespaced
from tests.support.wheel import build


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from agents import agent", "from wakeful.agents import agent"),
        ("from agents.kernel import ids", "from wakeful.agents.kernel import ids"),
        ("from . import on", "from . import on"),
        ("import agents, sys  # why", "import wakeful.agents; from wakeful import agents; import sys  # why"),
        ("import runs.db.sql as sql", "import wakeful.runs.db.sql as sql"),
        ("x = 'é'; import runs.tasks", "x = 'é'; import wakeful.runs.tasks; from wakeful import runs"),
        ("A = 'config.urls'", "A = 'wakeful.config.urls'"),
        ("A = 'triggers.beat:Scheduler'", "A = 'wakeful.triggers.beat:Scheduler'"),
        ("A = 'runs.states.RunStatus'", "A = 'wakeful.runs.states.RunStatus'"),
        ("A = 'runs.tasks config.tasks'", "A = 'wakeful.runs.tasks wakeful.config.tasks'"),
        ("A = f'triggers.sources.{name}'", "A = f'wakeful.triggers.sources.{name}'"),
        ("A = ['celery', '-A', 'config']", "A = ['celery', '-A', 'wakeful.config']"),
        ("name = 'agents'", "name = 'wakeful.agents'"),
        # A permission, a label, a salt, a path and a text are no modules.
        ("A = 'runs.view_run'", "A = 'runs.view_run'"),
        ("A = 'agents.llm.fence'", "A = 'agents.llm.fence'"),
        ("label = 'agents'", "label = 'agents'"),
        ("A = '/docs/agents.state'", "A = '/docs/agents.state'"),
        ("A = 'see agents.state, please'", "A = 'see agents.state, please'"),
    ],
)
def test_names_of_modules_get_the_package_and_others_do_not(source: str, expected: str) -> None:
    assert namespaced(source) == expected


def test_in_migrations_a_label_stays() -> None:
    assert namespaced("to = 'agents.state'", in_migrations=True) == "to = 'agents.state'"


@pytest.mark.parametrize("name", ["runs", "config", "sessions"])
def test_a_new_app_has_no_label_of_one_that_is_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Choose another name"):
        call_command("startagent", name, str(tmp_path))


@pytest.mark.chaos
def test_the_wheel_works_where_the_names_of_the_rooms_are_taken(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    with ZipFile(build(tmp_path)) as wheel:
        assert {name.partition("/")[0].partition("-")[0] for name in wheel.namelist()} == {"wakeful"}
        wheel.extractall(tmp_path / "site")
    for name in ("agents", "config", "runs", "triggers"):
        (theirs / name).mkdir(parents=True)
        (theirs / name / "__init__.py").write_text("MINE = True")
    env = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path / 'site'}:{theirs}",
        "DJANGO_SETTINGS_MODULE": "wakeful.config.settings",
    }

    def python(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=theirs, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    python("-m", "wakeful", "check")
    assert "No changes detected" in python("-m", "wakeful", "makemigrations", "--check", "--dry-run")
    python("-m", "wakeful", "startagent", "greeter")
    env["WAKEFUL_APPS"] = "greeter"
    assert "OK" in subprocess.run(
        [sys.executable, "-m", "wakeful", "test", "greeter", "--noinput"],
        cwd=theirs, env=env, capture_output=True, text=True, check=False, timeout=300,
    ).stderr  # fmt: skip
    (theirs / "shop").mkdir()
    (theirs / "shop/__init__.py").touch()
    (theirs / "shop/settings.py").write_text("INSTALLED_APPS = []\n")
    assert "Then: wakeful migrate" in python("-m", "wakeful", "init", "shop.settings")
    env["DJANGO_SETTINGS_MODULE"] = "shop.wakeful"
    python("-m", "wakeful", "check")
    python("-c", "import django; django.setup(); import agents, wakeful; assert agents.MINE and wakeful.agent")
