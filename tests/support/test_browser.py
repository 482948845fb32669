"""The browser of the browser tests: found, or skipped by name with the command that installs it."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support import browser


def test_a_page_of_the_browser_shows_its_content(page: Page) -> None:
    page.set_content("<h1>awake</h1>")

    assert page.get_by_role("heading").inner_text() == "awake"


def test_a_browser_that_does_not_run_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr(browser, "_candidates", lambda: iter([tmp_path / "missing", broken]))

    assert browser.find_chromium.__wrapped__() is None


def test_processes_of_a_run_look_for_a_browser_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = iter([None, tmp_path / "late"])
    monkeypatch.setattr(browser, "find_chromium", lambda: next(looks))

    assert [browser.find_once(tmp_path) for _ in range(3)] == [None] * 3
    (tmp_path / "other").mkdir()
    assert [browser.find_once(tmp_path / "other") for _ in range(3)] == [tmp_path / "late"] * 3
