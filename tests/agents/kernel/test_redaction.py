"""However many secrets are known, a text is cleaned as if it were searched for each shape of each, the longest first."""

import secrets
import string
from collections.abc import Callable
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kernel import redaction
from agents.kernel.redaction import MARK, redacted
from tests.support.secrets import known

# Few letters, so that secrets overlap, contain each other, and are put together by a MARK beside them.
LETTERS = st.text(alphabet='ab["]\\<secrt\u00e4', min_size=8, max_size=14)
ALL, NONE_OF_THEM = 10**9, -1


def one_by_one(text: str, is_hidden: Callable[[str], bool]) -> str:
    for shape in sorted(redaction._secret_of, key=lambda shape: (-len(shape), shape)):
        if shape in text and is_hidden(redaction._secret_of[shape]):
            text = text.replace(shape, MARK)
    return text


@given(
    given_secrets=st.lists(st.one_of(LETTERS, st.sampled_from([MARK, "t]aaaaaa", "aaaaaa[s", "x" + MARK])), max_size=8),
    parts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6), st.text(alphabet="ab[] ", max_size=3))),
    hidden=st.integers(0, 3),
    few=st.sampled_from([ALL, NONE_OF_THEM]),
)
def test_the_result_is_that_of_a_search_for_each(
    given_secrets: list[str], parts: list[tuple[int, int, str]], hidden: int, few: int
) -> None:
    def is_hidden(secret: str) -> bool:
        return len(secret) % 4 != hidden

    with known(*given_secrets), pytest.MonkeyPatch.context() as patched:
        patched.setattr(redaction, "FEW", few)
        shapes = sorted(redaction._secret_of) or ["nothing"]
        text = "".join(shapes[which % len(shapes)][cut:] + more for which, cut, more in parts)

        assert redaction._without(text, is_hidden) == one_by_one(text, is_hidden)
        assert all(len(shape) >= redaction.SHORTEST for shape in redaction._secret_of)


@pytest.mark.parametrize("few", [ALL, NONE_OF_THEM])
def test_a_secret_that_a_mark_puts_together_is_found(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "FEW", few)
    with known("0123-0123-0123", "x[secret"):
        assert redacted("x0123-0123-0123") == one_by_one("x0123-0123-0123", lambda secret: True) == f"{MARK}]"


def test_each_of_many_secrets_is_found_wherever_it_stands() -> None:
    many = [f"whsec_{secrets.token_hex(12)}<&>" for _ in range(300)]
    with known(*many):
        assert len(redaction._secret_of) > redaction.FEW
        for number, secret in enumerate(many):
            before = string.ascii_letters[: number % 23]
            assert redacted(f"{before}{secret}!") == f"{before}{MARK}!"
            assert redacted(f"{before}{escape(secret)}!") == f"{before}{MARK}!"


def test_secrets_that_begin_and_end_alike_share_no_search() -> None:
    """A text with what all of them have in common is not compared with each."""
    many = [f"postgres://app:{secrets.token_hex(12)}@db.example.com:5432/app" for _ in range(1000)]
    with known(*many):
        assert len(redaction._possible_in("postgres://app:hush@db.example.com:5432/app")) < 10
