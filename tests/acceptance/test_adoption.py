"""Wakeful is added to a project of a team's own, and removed again, by docs/beside-your-project.md word for word: its commands are run
and its files are written as they stand there."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from difflib import unified_diff
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest
import redis

from config.stack.embedded.binaries import find_postgres
from tests.support import wheel
from tests.support.newcomer import BEAT, EMIT, ORDER, PASSWORD, PATIENCE, SEND, TICK, File, Project, Terminal, steps
from tests.support.servers import TestServers, servers_for_tests
from tests.support.stack import ROOT, eventually, free_port

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
GUIDE, SCHEMA, MODULE = "beside-your-project.md", "A schema of its own", "A settings module"
# Beside the agent of the guide: a step that writes into a table of the project and may fail, and one that the project's own code wakes.
TRIALS = """

from django.db import connection


def note(order, text):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO public.notes_note (order_id, text) VALUES (%s, %s)", [order, text])
    if text == "fails":
        raise ValueError(text)


@agent(
    "noter", durable=True, retries=0, triggers=[on.model_change("public.orders_order", operations=["update"], fields=["total"])]
)
def noter(run: AgentRun):
    order = run.event.data["new"]
    run.step("note", note, order["id"], "fails" if order["total"] == 666 else "noted")


@agent("thanks", triggers=[on.event("order.paid")])
def thanks(run: AgentRun):
    note(run.event.data["order"], "paid")
"""


class Newcomer:
    """Has the project, and reads the guide."""

    def __init__(self, project: Project, terminal: Terminal, way: str, logs: Path) -> None:
        self.project, self.terminal, self.way, self.logs = project, terminal, way, logs
        self.pages = project.pages()
        self.own_path = str(ROOT) if terminal.folder == ROOT else ""  # where its own processes find `wakeful`
        self.schema = "wakeful" if way == SCHEMA else "public"

    def follow(self, said: dict[str, str]) -> int:
        """Returns how often the processes ran."""
        started = 0
        with ExitStack() as running:
            for step in steps(GUIDE, self.way, said):
                if isinstance(step, File):
                    self.write(step)
                    continue
                if started and re.search(r" (up|uninstall)\b", step.words):
                    self.try_out()
                    running.close()
                    assert "All processes stopped." in self.log("up")
                if step.words.endswith(" up"):
                    running.enter_context(self.terminal.running(step.words, self.logs / "up"))
                    eventually(lambda: "Ctrl-C stops everything." in self.log("up"), PATIENCE)
                    started += 1
                else:
                    typed = "uninstall\n" if " uninstall" in step.words else ""
                    answer = self.terminal.run(step.words, typed=typed).splitlines()
                    assert set(step.answer) <= set(answer), answer
        return started

    def write(self, file: File) -> None:
        path = Path(self.terminal.env["HOME"]) / file.path.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text + (TRIALS if path.name == "agents.py" else ""))

    def log(self, name: str) -> str:
        return (self.logs / name).read_text(errors="replace")

    def try_out(self) -> None:
        """The project does its work beside it, and agents do theirs."""
        theirs = self.project.terminal
        with redis.Redis.from_url(self.project.redis) as client:
            client.delete("shop:done")
        with theirs.running("python -m celery -A shop worker -c 2 -l INFO", self.logs / "worker"):
            eventually(lambda: " ready." in self.log("worker"), PATIENCE)
            began = time.monotonic()
            with theirs.running(BEAT, self.logs / "beat"):
                self.project.python(SEND)
                self.rows_wake_agents()
                self.project_emits()
                assert "4 passed" in self.project.tests()
                assert set(self.project.pages().values()) == {200}
                if self.way == MODULE:
                    self.console_has_its_pages()
                eventually(lambda: self.project.done()["tick"] >= 8, PATIENCE)
            lasted = time.monotonic() - began
            sent = self.log("beat").count("Sending due task theirs")
            eventually(lambda: self.project.done()["tick"] == sent)

        assert sent <= lasted / TICK + 1
        assert self.project.done() == {**{str(number): 1 for number in range(40)}, "tick": sent}
        assert "wakeful" not in self.log("beat")
        assert "unregistered" not in self.log("worker")

    def rows_wake_agents(self) -> None:
        project = self.project
        order = int(project.python(ORDER).split()[-1])
        eventually(lambda: project.query("SELECT 1 FROM orders_order WHERE id = %s AND checked", order), PATIENCE)

        project.query("UPDATE orders_order SET total = 6 WHERE id = %s", order)
        together = f"""SELECT step.status FROM notes_note note JOIN {self.schema}.runs_step step ON step.xmin = note.xmin
          WHERE order_id = %s AND text = 'noted'"""
        eventually(lambda: project.query("SELECT 1 FROM notes_note WHERE order_id = %s AND text = 'noted'", order))
        assert project.query(together, order) == [("done",)]

        failed = f"SELECT 1 FROM {self.schema}.runs_run WHERE agent = 'noter' AND status = 'failed'"
        before = len(project.query(failed))
        project.query("UPDATE orders_order SET total = 666 WHERE id = %s", order)
        eventually(lambda: len(project.query(failed)) > before)
        assert project.query("SELECT text FROM notes_note WHERE order_id = %s", order) == [("noted",)]

    def project_emits(self) -> None:
        order = int(self.project.python(EMIT, PYTHONPATH=self.own_path).split()[-1])
        paid = "SELECT order_id FROM notes_note WHERE text = 'paid' AND order_id >= %s"
        eventually(lambda: self.project.query(paid, order))
        assert self.project.query(paid, order) == [(order,)]
        emitted = (
            f"SELECT 1 FROM {self.schema}.triggers_event WHERE type = 'order.paid' AND (data->>'order')::int >= %s"
        )
        assert len(self.project.query(emitted, order)) == 1

    def console_has_its_pages(self) -> None:
        site = f"http://127.0.0.1:{self.terminal.env['WAKEFUL_PORT']}"
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        form = {
            "username": "ada@example.com",
            "password": "correct horse battery staple",
            "next": "/admin/orders/order/",
        }
        page = post(browser, f"{site}/admin/login/", form)
        assert "/admin/orders/order/1200/change/" in page
        for path in (
            "orders/order/1200/change/",
            "orders/order/add/",
            "notes/note/",
            "accounts/user/",
            "archive/entry/",
        ):
            assert browser.open(f"{site}/admin/{path}").status == 200


def post(browser: OpenerDirector, url: str, form: dict[str, str]) -> str:
    [token] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', browser.open(url).read().decode())[:1]
    data = urlencode({**form, "csrfmiddlewaretoken": token}).encode()
    page: str = browser.open(url, data).read().decode()
    return page


@pytest.fixture(params=["tree", "wheel"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, dict[str, str]]:
    """The folder in which the commands are given, that of the programs, and what has another name there."""
    if request.param == "tree":
        return ROOT, Path(sys.executable).parent, {}
    (tmp_path / "ours").mkdir()
    programs = wheel.environment(tmp_path / "environment", wheel.build(tmp_path / "ours"))
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder", programs, {"python manage.py": "wakeful", "config.settings": "wakeful.config.settings"}


@pytest.fixture
def servers() -> Iterator[TestServers]:
    with servers_for_tests({}) as servers:
        yield servers


@pytest.mark.parametrize("way", [SCHEMA, MODULE])
def test_a_newcomer_adds_it_and_removes_it_by_the_guide(
    way: str, place: tuple[Path, Path, dict[str, str]], servers: TestServers, tmp_path: Path
) -> None:
    folder, programs, names = place
    home, logs = tmp_path / "home", tmp_path / "logs"
    home.mkdir()
    logs.mkdir()
    psql = find_postgres(None).bin
    paths = (programs, Path(sys.executable).parent, psql, os.environ["PATH"])
    env = {"HOME": str(home), "PATH": os.pathsep.join(map(str, paths)), "LANG": "C.UTF-8"}
    project = Project(home, servers, env)
    postgres = {"PGHOST": "127.0.0.1", "PGPORT": str(project.port), "PGUSER": "shop", "PGPASSWORD": PASSWORD}
    ours = {"WAKEFUL_HOME": str(tmp_path / "wakeful"), "WAKEFUL_PORT": str(free_port())}
    newcomer = Newcomer(project, Terminal(folder, {**env, **postgres, **ours}), way, logs)
    project.put_back()
    before, files = project.dump(), project.files()
    at_redis = servers.redis_url.rsplit("/", 1)[0] + "/7"
    said = {
        "postgres://shop:…@db:5432/shop": project.url(),
        "redis://redis:6379/7": at_redis,
        "/home/ada": str(home),
        **names,
    }

    assert newcomer.follow(said) == (2 if way == SCHEMA else 1)

    assert project.files() == files
    assert "4 passed" in project.tests()
    assert project.pages() == newcomer.pages
    project.put_back()
    differs = list(unified_diff(before, project.dump(), n=0))
    assert not differs, "\n".join(differs)
    for url in (servers.redis_url, at_redis):
        with redis.Redis.from_url(url) as client:
            assert not [key for key in client.keys("*") if b"wakeful" in key or b"runs." in key]
    with redis.Redis.from_url(at_redis) as client:
        assert client.keys("*") == []
