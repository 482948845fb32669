"""The Chromium of the browser tests: found on the system, or installed (`python -m tests.support.browser --install`)."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from django.db import connection
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
PLACES = (
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
)
# A test speaks to our own web process only; what a browser does beside that slows it down.
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@cache
def find_chromium() -> Path | None:
    """A Chromium that runs here: WAKEFUL_CHROMIUM, one on the system, or Playwright's own."""
    return next((candidate for candidate in _candidates() if _runs(candidate)), None)


def find_once(shared: Path) -> Path | None:
    """The same for processes that share this folder: the first of them starts it to see that it runs."""
    kept = shared / "chromium"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(str(find_chromium() or ""))
    found = kept.read_text()
    return Path(found) if found else None


@contextmanager
def browsing(chromium: Path) -> Iterator[Browser]:
    """Inside the block Playwright's loop runs in this thread, where Django would refuse the ORM, and has another connection to the
    database than outside. Both begin without a session: the cursor that a thread keeps (`runs.db.sql`) is that of the last one that was
    open, so that statements of later tests would be committed in it, whatever their transaction."""
    connection.close()
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()
        connection.close()


def how_to_install() -> str:
    """The command that makes the browser tests run."""
    if shutil.which("apt-get"):
        return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install -y chromium"
    return f"{sys.executable} -m playwright install chromium"


def is_required() -> bool:
    """Whether a skipped browser test counts as a failure."""
    return os.environ.get("WAKEFUL_REQUIRE_BROWSER") == "1"


def install() -> Path | None:
    """One that is there, or get one where that is possible: Playwright's download, or as root the system's package."""
    if found := find_chromium():
        return found
    _try([sys.executable, "-m", "playwright", "install", "chromium"], seconds=300)
    find_chromium.cache_clear()
    if (found := find_chromium()) or os.geteuid() != 0 or not shutil.which("apt-get"):
        return found
    _try(["apt-get", "update", "-q"], seconds=300)
    _try(["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"], seconds=600)
    find_chromium.cache_clear()
    return find_chromium()


def _candidates() -> Iterator[Path]:
    if given := os.environ.get("WAKEFUL_CHROMIUM"):
        yield Path(given)
    yield from (Path(found) for name in NAMES if (found := shutil.which(name)))
    yield from PLACES
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    yield own


def _runs(binary: Path) -> bool:
    # Started in earnest: a downloaded one may be there and lack the system's libraries.
    if not binary.exists():
        return False
    done = _try([str(binary), *ARGUMENTS, "--dump-dom", "about:blank"], seconds=60)
    return done is not None and "<html" in done


def _try(command: list[str], seconds: int) -> str | None:
    """The output of the command, or None if it failed."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


if __name__ == "__main__":
    chromium = find_chromium()
    if chromium is None and "--install" in sys.argv:
        print("No Chromium for the browser tests: trying to install one …", flush=True)
        chromium = install()
    if chromium:
        print(f"Browser tests use {chromium}.")
    else:
        print(
            f"No Chromium: browser tests will be {'failed' if is_required() else 'skipped'}. Install one with: {how_to_install()}"
        )
