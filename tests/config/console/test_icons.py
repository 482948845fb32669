"""The font of the console has each icon that the console and unfold show. Teams with admin pages of their own get all icons.

`icons.woff2` is made of unfold's font and `icons.txt` by pyftsubset (fonttools, brotli):

    pyftsubset Material-Symbols-Outlined.woff2 --flavor=woff2 --layout-features='*' --no-layout-closure --no-hinting
        --glyphs=<the ligature of each line> --unicodes=<each letter of a line>
"""

import base64
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import unfold
from django.test import Client
from playwright.sync_api import Page

from config.console import icons

ROOT, UNFOLD = Path(__file__).parents[3], Path(unfold.__file__).parent
KNOWN = set((ROOT / "config/static/console/icons.txt").read_text().split())
NAMED = (
    re.compile(r"""\bicon["']?\s*[=:]\s*["']([a-z0-9_]+)["']"""),
    re.compile(r"""material-symbols-outlined[^>]*>\s*([a-z0-9_]+)\s*<"""),
    re.compile(r"""SITE_SYMBOL["']:\s*["']([a-z0-9_]+)"""),
    re.compile(r"""content:\s*["']([a-z0-9_]+)["']"""),
)
CHOSEN = re.compile(r"material-symbols-outlined[^>]*>([^<]*)</span>")  # one of several, by tags of the template
NOT_SHOWN = {"href", "icon", "relative", "type"}  # other words in such places


def icons_in(*folders: Path) -> set[str]:
    texts = [
        file.read_text()
        for folder in folders
        for ending in ("*.html", "*.py", "*.js", "*.css")
        for file in folder.rglob(ending)
        if "chart" not in file.parts
    ]
    chosen = {
        name
        for text in texts
        for inside in CHOSEN.findall(text)
        for name in re.sub("{%.*?%}|{{.*?}}", "", inside).split()
    }
    return ({name for text in texts for named in NAMED for name in named.findall(text)} | chosen) - NOT_SHOWN


def test_the_font_has_each_icon_of_the_console() -> None:
    used = icons_in(ROOT / "config", ROOT / "templates")

    assert len(used) > 40
    assert used - KNOWN == set(), "add them to icons.txt, and make the font again: see above"


def test_the_font_has_each_icon_of_unfold() -> None:
    assert (
        icons_in(UNFOLD / "templates", UNFOLD / "static" / "unfold" / "js", UNFOLD / "static" / "unfold" / "css")
        - KNOWN
        == set()
    )


@pytest.mark.browser
def test_the_font_has_a_picture_for_each_of_its_names(page: Page) -> None:
    """A name that it has no picture for is shown as its letters, which are wider."""
    font = base64.b64encode((ROOT / "config/static/console/icons.woff2").read_bytes()).decode()
    page.set_content(
        f"<style>@font-face {{ font-family: icons; src: url(data:font/woff2;base64,{font}) }} i {{ font: 24px icons }}</style>"
        + "".join(f"<i>{name}</i> " for name in sorted(KNOWN))
    )

    wide = page.evaluate(
        "document.fonts.load('24px icons').then(() => [...document.querySelectorAll('i')]"
        ".filter(each => each.offsetWidth !== 24).map(each => each.textContent))"
    )

    assert wide == []


@pytest.mark.django_db
def test_the_font_has_each_icon_of_the_sidebar(admin: Client) -> None:
    shown = set(NAMED[1].findall(admin.get("/admin/").content.decode()))

    assert len(shown) > 10
    assert shown - KNOWN == set()


@pytest.mark.django_db
def test_the_console_loads_the_small_font_and_a_team_with_pages_of_its_own_all_icons(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "console/icons.css" in admin.get("/admin/").content.decode()

    theirs: Any = type("TheirAdmin", (), {"__module__": "shop.admin"})()
    monkeypatch.setattr(icons, "admin", SimpleNamespace(site=SimpleNamespace(_registry={"shop": theirs})))

    assert "console/all_icons.css" in admin.get("/admin/").content.decode()
