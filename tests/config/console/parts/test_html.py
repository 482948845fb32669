"""Texts of set-ups in HTML."""

import pytest

from config.console.parts.html import coded, emphasised


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


def test_backticks_around_a_name_are_code_and_all_else_is_escaped() -> None:
    assert coded("emits `order.received`, ``a`` <b> and a lone `") == (
        "emits <code>order.received</code>, <code>a</code> &lt;b&gt; and a lone `"
    )
    assert coded("`<b>`") == "<code>&lt;b&gt;</code>"
