"""Real servers for every process that runs tests, started before Django reads its settings."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from copy import copy
from functools import cache
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from threading import Thread
from typing import Any

import django
import httpcore2
import pytest
from django.conf import settings
from django.db import connection
from django.test import TransactionTestCase, client
from django.test.utils import ContextList
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis.internal.conjecture import providers
from playwright.sync_api import Browser, Page, expect
from whitenoise.middleware import WhiteNoiseMiddleware

from tests.support import migrated, pristine
from tests.support.browser import browsing, find_chromium, find_once, how_to_install, is_required
from tests.support.examples import FULL, some_of
from tests.support.servers import SETTINGS, TestServers, reachable_folder, servers_for_tests

# With `-n` this process only hands the tests out: each of those that run them has servers of its own.
_hands_out = "PYTEST_XDIST_WORKER" not in os.environ and any(argument.startswith("-n") for argument in sys.argv)
# At import, not in a hook: other conftests import models while pytest is still starting.
_lifetime = ExitStack()
# One of them migrates a database, in a folder that this process makes for all of them.
if _hands_out:
    os.environ[migrated.SHARED] = str(_lifetime.enter_context(reachable_folder()))
    if "DATABASE_URL" not in os.environ:
        _lifetime.enter_context(migrated.being_made())
_servers = None if _hands_out else _lifetime.enter_context(servers_for_tests(fill=migrated.fill))
_env = _servers.env if _servers else SETTINGS
_env = {name: value for name, value in _env.items() if name not in os.environ or name == "WAKEFUL_HOME"}
os.environ.update(_env)
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
os.environ["WAKEFUL_DEMO"] = "1"  # the models of agents.library; a stack has them only if its test says so
django.setup()
if _servers and _servers.embedded.postgres and migrated.SHARED in os.environ:
    connection.settings_dict["TEST"]["TEMPLATE"] = migrated.DATABASE
import_module("config.urls")  # the console's pages, which a process without URLs does without
# The modules stay, and the tests too once they are collected: looking through them for garbage took an eighth of the CPU.
gc.freeze()
gc.set_threshold(20_000, 50, 1_000)
if not _hands_out:
    gc.disable()  # until they are collected
# Django has tasks from 6.0 on, with which `make matrix` runs these; with the locked 5.2 there is nothing to import.
OF_TASKS = ("triggers/django_tasks/test_backend.py", "triggers/django_tasks/test_forged.py")
collect_ignore = [] if django.VERSION >= (6,) else list(OF_TASKS)
# A login in a test need not be slow to guess.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# A busy machine is no failure: how long a test may take is pytest-timeout's business.
hypothesis_settings.register_profile(
    "wakeful",
    parent=hypothesis_settings.default,
    deadline=None,
    max_examples=some_of(100),
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("wakeful")
if not FULL:
    # Constants of all our modules are tried as examples; to find them takes two seconds of each process.
    providers._get_local_constants = lambda: providers._local_constants
if _hands_out:
    # They inherit the environment: with the first they would read the settings before their servers run, and the others
    # are not those that they make for themselves.
    for name in ("DJANGO_SETTINGS_MODULE", *_env):
        del os.environ[name]

from agents import registry  # noqa: E402  (they need the settings)
from agents.prompt_agents import catalog  # noqa: E402
from runs.chores import timers  # noqa: E402
from runs.db import ready_runs  # noqa: E402
from tests.support.nurseries import nurseries  # noqa: E402
from tests.support.stack import PATIENCE, ROOT, Stack, StackMaker, Template  # noqa: E402
from tests.support.wire import Wire, providing  # noqa: E402
from triggers.matching import pending  # noqa: E402
from triggers.sources.webhooks import endpoint  # noqa: E402


def pytest_unconfigure() -> None:
    nurseries.close()
    _lifetime.close()


def pytest_sessionstart() -> None:
    if _hands_out:
        Thread(target=_load_tests, daemon=True).start()


def _load_tests() -> None:
    """Pytest's bytecode of each test file is written by this process, which has nothing to do, once and not by four others."""
    for file in sorted(ROOT.glob("tests/**/test_*.py")):
        with suppress(Exception, pytest.skip.Exception):  # the process that runs this file reports it
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The marker of a test is the folder it stands in; `make chaos` tries all examples of a property."""
    folders = {
        path: {"acceptance", "integration", "promises"} & set(path.parts) for path in {item.path for item in items}
    }
    for item in items:
        for folder in folders[item.path]:
            item.add_marker(folder)
        if {"browser", "page"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("browser")
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("sampled")
    turns = _turns(items)
    items.sort(key=lambda item: turns[item.path])


def _turns(items: list[pytest.Item]) -> dict[Path, int]:
    """Large files come first, so that all processes end at about the same time. Those whose tests start processes, and wait for them,
    alternate with others: several stacks at once have most of the memory that a run takes, and leave the CPU idle."""
    files = [path for path, _ in Counter(item.path for item in items).most_common()]
    waiting = {item.path for item in items if _starts_processes(item)}
    pairs = zip_longest([path for path in files if path in waiting], [path for path in files if path not in waiting])
    return {path: turn for turn, path in enumerate(path for pair in pairs for path in pair if path)}


def _starts_processes(item: pytest.Item) -> bool:
    fixtures = {"make_stack", "make_shared_stack"} & set(getattr(item, "fixturenames", ()))
    return bool(fixtures or item.get_closest_marker("acceptance") or item.get_closest_marker("browser"))


@pytest.fixture(autouse=True)
def no_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow looks leave hints for later ones, for a second: on a busy machine one test would change the order of another's claims."""
    for hint in (ready_runs.hints, timers.since, pending.first):
        monkeypatch.setattr(hint, "slow", float("inf"))


@pytest.fixture(autouse=True)
def no_prompt_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process keeps those that it has read; a test begins without any, and looks once: how many queries a page costs must not
    depend on the second of its look."""
    monkeypatch.setattr(registry, "_prompt_agents", {})
    monkeypatch.setattr(catalog, "_kept", {})
    monkeypatch.setattr(catalog, "_looked_at", float("-inf"))
    monkeypatch.setattr(catalog, "LOOKS_APART", float("inf"))


@pytest.fixture(autouse=True)
def no_endpoints() -> None:
    """A process keeps those that it has read, by slug; another test's source with the same slug is another one."""
    endpoint.kept.clear()


@pytest.fixture(autouse=True, scope="session")
def files_found_once() -> Iterator[None]:
    """Each test client loads the middlewares, and WhiteNoise's searches all static files."""
    found: dict[str, Any] = {}
    look = WhiteNoiseMiddleware.add_files_from_finders

    def add_files_from_finders(middleware: WhiteNoiseMiddleware) -> None:
        if not found:
            look(middleware)
            found.update(middleware.files)
        middleware.files.update(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", add_files_from_finders)
        yield


@pytest.fixture(autouse=True, scope="session")
def certificates_read_once() -> Iterator[None]:
    """Each client of a provider of models reads all certificates that the machine trusts; no test has others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(autouse=True, scope="session")
def contexts_copied_once() -> Iterator[None]:
    """The test client copies the context of each template that a page includes, some hundreds; tests look at that of the page."""

    def store(kept: dict[str, Any], signal: Any, sender: Any, template: Any, context: Any, **kwargs: Any) -> None:
        kept.setdefault("templates", []).append(template)
        if "context" not in kept:
            kept["context"] = ContextList([copy(context)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "store_rendered_templates", store)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """The test database; a test that commits puts back what the migrations left in it. Yields a copy for stacks to begin with;
    its name is empty if no test of this session needs the test database."""
    with django_db_blocker.unblock():
        copy = pristine.copy()
        pristine.keep()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: pristine.put_back())
        patch.setattr(TransactionTestCase, "_should_reload_connections", lambda _: pristine.renew_session())
        yield copy
    pristine.close()
    connection.close()  # after tests in a browser, the plugin's teardown leaves it open and cannot drop the database


@pytest.fixture(scope="session")
def servers() -> TestServers:
    """The servers of this run. Never kill these: a fault test takes `make_stack(own_servers=True)`."""
    assert _servers
    return _servers


@pytest.fixture(scope="session")
def template(servers: TestServers, django_db_setup: str) -> Iterator[Template]:
    """A migrated database that every stack copies."""
    with Template(servers, django_db_setup) as template:
        yield template


@pytest.fixture
def make_stack(template: Template, tmp_path: Path, django_db_blocker: Any) -> Iterator[StackMaker]:
    """A function that makes stacks with other settings: see `StackMaker`."""
    with StackMaker(template, tmp_path, django_db_blocker) as maker:
        yield maker


@pytest.fixture(scope="module")
def make_shared_stack(
    template: Template, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any
) -> Iterator[StackMaker]:
    """The same for stacks that the tests of a module share."""
    with StackMaker(template, tmp_path_factory.mktemp("shared"), django_db_blocker) as maker:
        yield maker


@pytest.fixture
def stack(make_stack: StackMaker) -> Stack:
    """A stack on a fresh, migrated database; no process of it runs yet: `stack.start("worker")` … or `stack.up()`."""
    return make_stack()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A provider of models that the clients of this process find by their own settings."""
    with providing() as wire:
        for name, value in wire.env.items():
            monkeypatch.setenv(name, value)
        yield wire


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium; without one the test is skipped with the command that installs it, or failed where it is required."""
    shared = os.environ.get(migrated.SHARED)
    chromium = find_once(Path(shared)) if shared else find_chromium()
    if chromium is None:
        said = f"no Chromium for browser tests; install one with: {how_to_install()}"
        if is_required():
            pytest.fail(said)
        pytest.skip(said)
    with browsing(chromium) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a fresh browser profile; waits for what it is asked for."""
    with browser.new_context(viewport={"width": 1400, "height": 1000}) as context:
        context.set_default_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PATIENCE * 1000)
        yield context.new_page()
