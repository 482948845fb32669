"""Texts of set-ups in HTML."""

import pytest

from config.console.parts.html import emphasised


@pytest.mark.parametrize(
    "text, html",
    [
        ("Open *Settings* → *New app*.", "Open <em>Settings</em> → <em>New app</em>."),
        ("*a <b>*", "<em>a &lt;b&gt;</em>"),
        ("hosts such as *.example.com, *.example.org", "hosts such as *.example.com, *.example.org"),
        ("2 * 3 * 4", "2 * 3 * 4"),
    ],
)
def test_what_stands_between_asterisks_is_emphasised(text: str, html: str) -> None:
    assert emphasised(text) == html
