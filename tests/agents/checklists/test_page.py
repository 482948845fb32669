"""A checklist as a page of text: what is written is read as the same items, and no line is lost unseen."""

import string
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.checklists.page import PageItem, above_items, plain, read_page, write_page

HOUR = timedelta(hours=1)
PAGE = """\
# Checklist of ops-watch

- Are there failed runs?
- Is the newest backup older than a day? (every 6h)
- Is the disk full? (every 1h30m, paused)
- The newest letters
  of customers:

    - those of the shop
  - and others (paused)
"""
ITEMS = [
    PageItem(text="Are there failed runs?"),
    PageItem(text="Is the newest backup older than a day?", every=6 * HOUR),
    PageItem(text="Is the disk full?", every=1.5 * HOUR, paused=True),
    PageItem(text="The newest letters\nof customers:\n\n  - those of the shop\n- and others", paused=True),
]
WORDS = st.text(st.sampled_from(string.ascii_letters + " \n\r\t-*#()[],<>!0123456789ä"), max_size=40)
BEGINS = st.sampled_from(["", "[ ] ", "[x] a", "- ", "# ", "<!-- "])
ENDS = st.sampled_from(["", " (paused)", " (each run)", " (every 1h)", " (every day)", " -->", "\n<!-- x"])
TEXTS = st.tuples(BEGINS, WORDS, ENDS).map(lambda parts: plain("".join(parts)).strip()).filter(bool)
EVERY = st.none() | st.integers(1, 366 * 86_400).map(lambda seconds: timedelta(seconds=seconds))


def test_a_page_is_read_and_written() -> None:
    assert read_page(PAGE) == ITEMS
    assert write_page("Checklist of ops-watch", ITEMS) == PAGE


@given(st.lists(st.builds(PageItem, text=TEXTS, every=EVERY, paused=st.booleans()), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_items_are_read_as_they_were_written(items: list[PageItem]) -> None:
    assert read_page(write_page("x", items)) == items


def test_a_page_of_other_hands_is_read() -> None:
    page = (
        "\ufeff## Morning\r\n\r\n* [ ] Mail  \r\n+ [x] Calendar (every 2 hours)\r\n<!-- later\r\n- not this\r\n-->\r\n"
    )

    assert read_page(page) == [PageItem(text="Mail"), PageItem(text="Calendar", every=2 * HOUR)]


@pytest.mark.parametrize(
    "page, why",
    [
        ("- a\nLook at the mail", r"line 2: 'Look at the mail' is no item"),
        ("  indented", "line 1"),
        ("- a (every often)", "'often' is not a duration"),
        ("- (paused)", "has no text"),
        ("<!-- open\n- a", "is not closed"),
    ],
)
def test_what_is_no_item_is_refused_with_its_place(page: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_page(page)


@pytest.mark.parametrize("page", ["", "# Nothing\n", "\n\n<!-- nothing -->\n"])
def test_an_empty_page_has_no_items(page: str) -> None:
    assert read_page(page) == []


def test_a_long_line_is_read_in_proportion_to_its_length() -> None:
    text = f"a{' ' * 1_000_000}b"  # in proportion to its square it would be minutes

    assert read_page(f"- {text} (every 1h)") == [PageItem(text=text, every=timedelta(hours=1))]


def test_what_stands_above_the_items_is_kept() -> None:
    page = "<!--\n- not this\n-->\n# Ours\n\nfirst\n"
    above, has_more = above_items(page.replace("\nfirst\n", "\n- first\n"))

    assert (above, has_more) == ("<!--\n- not this\n-->\n# Ours", False)
    assert read_page(write_page("x", ITEMS, above=above)) == ITEMS
    assert above_items(f"- first\n{above}\n- second\n") == ("", True)
