"""Decisions in words, where no column beside them names their outcome."""

import pytest

from config.console.events.decisions import reason_of
from triggers.models import Decision


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("quiet", "its gate was quiet: no item is due"),
        ("overlap", "no item is due"),
        ("dropped", "was held or backfilled, then given up by a person: no item is due"),
    ],
)
def test_a_reason_that_does_not_speak_for_itself_names_the_outcome(outcome: str, words: str) -> None:
    assert reason_of(Decision(outcome=outcome, reason="no item is due")) == words
