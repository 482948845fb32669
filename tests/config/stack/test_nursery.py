"""Programs that are forked from a prepared process are what their command lines would have started."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from config.stack import children
from config.stack.children import command_of
from config.stack.nursery import CAN_FORK, Child, Forked, Nursery
from tests.support.servers import SETTINGS, surroundings
from tests.support.stack import ROOT, eventually

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="programs are forked on Linux alone")

LOOKS = """
import json, os, random, sys
from uuid_utils.compat import uuid7
from config.celery import app
from django.conf import settings
print(json.dumps({
    "argv": sys.argv, "command": sys.orig_argv, "forked": "config.stack.children" in sys.modules, "name": __name__, "folder": sys.path[0],
    "ids": [os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0)], "random": [str(uuid7()), random.random()],
    "port": settings.WAKEFUL_PORT, "database": settings.DATABASES["default"]["NAME"], "apps": "agents.library" in settings.INSTALLED_APPS,
    "verify": "config.management.commands.verify" in sys.modules,
    "broker": app.conf.broker_url, "environment": dict(os.environ), "descriptors": len(os.listdir("/proc/self/fd")),
}), flush=True)
"""
STAYS = "import time; print('stays', flush=True); time.sleep(60)"
DIES = "import sys; print('alas', file=sys.stderr); sys.exit(3)"
STARTER = """
import os, sys, time
from config.stack.nursery import Nursery
nursery = Nursery(dict(os.environ))
print(nursery.spawn([sys.executable, sys.argv[1]], env=dict(os.environ), output=2).pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def env() -> dict[str, str]:
    ours = {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "config.settings", "WAKEFUL_HOME": "/nowhere"}
    return {**surroundings(), **SETTINGS, **ours}


@pytest.fixture(scope="module")
def nursery(env: dict[str, str]) -> Iterator[Nursery]:
    with Nursery(env) as nursery:
        yield nursery


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(LOOKS)
    return path


def said_by(process: Child) -> Any:
    assert process.stdout
    with process.stdout as output:
        text = output.read()
    assert process.wait(60) == 0, text
    return json.loads(text)


def look(nursery: Nursery, script: Path, env: dict[str, str], *arguments: str) -> Any:
    return said_by(nursery.spawn([sys.executable, str(script), *arguments], env=env, output=subprocess.PIPE))


def test_a_fork_is_a_child_of_ours_in_a_session_of_its_own(nursery: Nursery, script: Path, env: dict[str, str]) -> None:
    seen = look(nursery, script, env, "one", "two")

    pid = seen["ids"][0]
    assert seen["forked"]
    assert seen["ids"] == [pid, os.getpid(), pid, pid]
    assert (seen["name"], seen["argv"], seen["folder"]) == (
        "__main__",
        [str(script), "one", "two"],
        str(script.parent),
    )
    assert seen["command"] == [sys.executable, str(script), "one", "two"]
    assert seen["descriptors"] == 4  # three, and the one that looks


@pytest.mark.chaos
def test_a_setting_that_cannot_be_read_here_is_the_same_where_a_module_of_the_team_has_it(
    script: Path, env: dict[str, str], tmp_path: Path
) -> None:
    """Such as a page of the project, which is not among the URLs of Wakeful's processes."""
    (tmp_path / "theirs.py").write_text("from django.urls import reverse_lazy\nHOME = reverse_lazy('shop:index')\n")
    (tmp_path / "beside.py").write_text("from config.settings import *\nfrom theirs import HOME\n")
    (tmp_path / "made.py").write_text(
        "from config.settings import *\nfrom django.urls import reverse_lazy\nHOME = reverse_lazy('shop:index')\n"
    )
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader/__init__.py").touch()
    (tmp_path / "reader/models.py").write_text("from django.conf import settings\nsettings.HOME\n")
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "WAKEFUL_APPS": "reader"}
    forked = {}
    for name in ("beside", "made"):
        here = {**env, **path, "DJANGO_SETTINGS_MODULE": name}
        with Nursery(here) as nursery:
            forked[name] = look(nursery, script, here)["forked"]

    assert forked == {"beside": True, "made": False}  # a start serves as well as a fork


def test_a_fork_has_its_own_settings_and_environment(nursery: Nursery, script: Path, env: dict[str, str]) -> None:
    own = {
        "WAKEFUL_PORT": "7777",
        "DATABASE_URL": "postgres://a:b@127.0.0.1:1/mine",
        "CELERY_BROKER_URL": "redis://mine/7",
        "PGAPPNAME": "mine",
    }

    seen, plain = look(nursery, script, env | own), look(nursery, script, env)

    assert seen["forked"] and plain["forked"]
    assert (seen["port"], seen["database"], seen["broker"]) == (7777, "mine", "redis://mine/7")
    assert plain["port"] == 8000 and plain["database"] != "mine" and plain["broker"] != "redis://mine/7"
    for given, environment in ((env | own, seen["environment"]), (env, plain["environment"])):
        assert environment == {**given, "TZ": "UTC", "CELERY_SKIP_CHECKS": "1"}


def test_a_fork_of_a_command_does_not_load_it_again(nursery: Nursery, script: Path, env: dict[str, str]) -> None:
    manage = script.rename(script.with_name("manage.py"))

    assert not look(nursery, manage, env, "no-command")["verify"]
    assert look(nursery, manage, env, "verify")["verify"]


@pytest.mark.chaos
def test_two_forks_draw_different_random_numbers(nursery: Nursery, script: Path, env: dict[str, str]) -> None:
    one, other = look(nursery, script, env)["random"], look(nursery, script, env)["random"]

    assert one[0] != other[0] and one[1] != other[1]


@pytest.mark.chaos
@pytest.mark.parametrize(
    "own", [{"WAKEFUL_DEMO": "1"}, {"PYTHONHASHSEED": "3"}, {"C_FORCE_ROOT": "1"}, {"PGP_HOME": "x"}], ids=str
)
def test_variables_that_modules_have_read_already_prevent_a_fork(
    nursery: Nursery, script: Path, env: dict[str, str], own: dict[str, str]
) -> None:
    # Setting up Django is the script's business, when no process has prepared it.
    seen = look(nursery, script, env | own)

    assert not seen["forked"]
    assert seen["apps"] == ("WAKEFUL_DEMO" in own)
    assert seen["ids"][1:] == [os.getpid(), seen["ids"][0], seen["ids"][0]]


@pytest.mark.chaos
def test_changed_code_is_no_fork(script: Path, env: dict[str, str], tmp_path: Path) -> None:
    app = tmp_path / "apps" / "ours"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    env = {**env, "WAKEFUL_APPS": "ours", "PYTHONPATH": f"{ROOT}:{app.parent}"}
    with Nursery(env) as nursery:
        before = look(nursery, script, env)
        (app / "agents.py").touch()
        after = look(nursery, script, env)

    assert before["forked"] and not after["forked"]


@pytest.mark.chaos
def test_an_app_that_begins_a_thread_is_not_forked(script: Path, env: dict[str, str], tmp_path: Path) -> None:
    app = tmp_path / "apps" / "busy"
    app.mkdir(parents=True)
    (app / "__init__.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    env = {**env, "WAKEFUL_APPS": "busy", "PYTHONPATH": f"{ROOT}:{app.parent}"}
    with Nursery(env) as nursery:
        process = nursery.spawn([sys.executable, str(script)], env=env, output=subprocess.PIPE)

        assert not isinstance(process, Forked)
        assert not said_by(process)["forked"]


def test_without_a_prepared_process_a_program_is_started_by_itself(script: Path, env: dict[str, str]) -> None:
    nursery = Nursery(env | {"WAKEFUL_PORT": "none"})  # a setting that nothing can start with
    with nursery:
        assert not look(nursery, script, env)["forked"]


@pytest.mark.chaos
@pytest.mark.parametrize("hangs", ["while it loads", "when it forks"])
def test_a_prepared_process_that_hangs_holds_up_no_program(
    script: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    lines: list[str] = []
    with Nursery(env, say=lines.append) as nursery:
        assert look(nursery, script, env)["forked"]
        assert nursery._process
        pid = nursery._process.pid
        if hangs == "when it forks":

            def freeze(is_adopting: bool) -> None:
                if is_adopting:
                    os.kill(pid, signal.SIGSTOP)

            monkeypatch.setattr(children, "adopt", freeze)
        else:
            os.kill(pid, signal.SIGSTOP)
        nursery._socket.settimeout(2)

        assert not look(nursery, script, env)["forked"]

        assert not command_of(pid)
        assert len(lines) == 1 and "does not answer" in lines[0]


@pytest.mark.chaos
def test_an_environment_that_is_too_large_for_one_message_is_no_fork(script: Path, env: dict[str, str]) -> None:
    large = {f"WAKEFUL_LARGE_{number}": "x" * 100_000 for number in range(5)}
    with Nursery(env) as nursery:
        assert not look(nursery, script, env | large)["forked"]


def test_a_fork_ends_as_a_program_does(nursery: Nursery, env: dict[str, str], script: Path, tmp_path: Path) -> None:
    script.write_text(DIES)
    with (tmp_path / "log").open("wb") as log:
        process = nursery.spawn([sys.executable, str(script)], env=env, output=log)
        assert process.wait(60) == process.poll() == 3
    assert (tmp_path / "log").read_text() == "alas\n"

    script.write_text(STAYS)
    with (tmp_path / "log").open("wb") as log:
        process = nursery.spawn([sys.executable, str(script)], env=env, output=log)
    eventually(lambda: (tmp_path / "log").read_text() == "stays\n")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert [word for word in psutil.Process(process.pid).cmdline() if word] == [sys.executable, str(script)]
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    process.kill()  # of no process


@pytest.mark.chaos
def test_a_fork_outlives_what_forked_it_and_dies_with_its_parent(env: dict[str, str], script: Path) -> None:
    script.write_text(STAYS)
    starter = [sys.executable, "-c", STARTER, str(script)]
    with subprocess.Popen(starter, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        [prepared] = [child for child in psutil.Process(parent.pid).children() if child.pid != pid]
        prepared.kill()
        eventually(lambda: not command_of(prepared.pid))
        assert command_of(pid)

        parent.kill()
        eventually(lambda: not command_of(pid))
