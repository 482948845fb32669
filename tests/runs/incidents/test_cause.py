"""The same failure has the same cause, whatever it was about; different failures keep theirs apart."""

import pytest

from runs.incidents.cause import LENGTH, NONE, cause_of

SAME = [
    ("KeyError: 'x7'", "KeyError: 'y'"),
    ("ValueError: row 12 of 90", "ValueError: row 7 of 1,200.5"),
    (
        "DoesNotExist: customer 0b5e8d1c-9f4e-4c6b-8a51-0c8f3f0f7f11",
        "DoesNotExist: customer 99f9a3b2-0000-4aaa-8bbb-012345678901",
    ),
    ("HTTPError: evt_1Nx8Kq2eZv was refused", "HTTPError: evt_3Zb7Lm9aQw was refused"),
    ("TimeoutError: 10.0.0.3:5432 after 30.2 s", "TimeoutError: 10.12.7.99:5433 after 8 s"),
    ("Error at 0xdeadbeef1", "Error at 0xcafe0012"),
    ("Refused: ada@example.com is unknown", "Refused: bob@mail.example.org is unknown"),
    ("Late since 2026-11-20T09:00:00+00:00", "Late since 2025-01-02T23:59:59.123+01:00"),
    ("Error: one\n  two", "Error: one two"),
    ("OSError: can't open 'a.txt', isn't there", "OSError: can't open 'b.txt', isn't there"),
]
OTHER = [
    ("ConnectionError: no answer", "TimeoutError: no answer"),
    ("Error: the facade is defaced", "Error: the decade is faceted"),
    ("StepFailed: step 'a' failed: KeyError: 'x'", "StepFailed: step 'a' failed: ValueError: x"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_errors_that_differ_in_values_have_one_cause(one: str, other: str) -> None:
    assert cause_of(one) == cause_of(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_errors_that_differ_in_words_have_two_causes(one: str, other: str) -> None:
    assert cause_of(one) != cause_of(other)


def test_a_cause_is_a_readable_text() -> None:
    assert cause_of("KeyError: 'x7' in row 12 of orders") == "KeyError: '…' in row # of orders"
    assert cause_of("  ") == NONE


@pytest.mark.parametrize(
    "evil", ["'" * 10_000, "1a-" * 5_000, "a@" * 5_000, "0x" * 5_000, "1.1:" * 5_000, "ab1-" * 5_000]
)
def test_no_error_is_too_long_or_takes_for_ever(evil: str) -> None:
    assert len(cause_of(f"Error: {evil}")) <= LENGTH
