"""When a prompt agent wakes, in words."""

import pytest

from triggers.prompt_agents.wakes import read_sentence
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.words import read_rule

MUST = "every weekday at 8 look at failed runs and tell me what to fix first"


def test_a_sentence_begins_with_its_schedule() -> None:
    rule, rest = read_sentence(MUST, "Europe/Vienna")

    assert rule == Cron.parse("0 8 * * mon-fri", "Europe/Vienna")
    assert rest == "look at failed runs and tell me what to fix first"


@pytest.mark.parametrize(
    ("text", "words", "rest"),
    [
        (
            "Every 30 minutes, look at the queue.\nSay nothing twice.",
            "every 30m",
            "look at the queue.\nSay nothing twice.",
        ),
        ("on the 1st of every month at 09:00: count invoices", "0 9 1 * *", "count invoices"),
        ("every monday and thursday at 17:30 UTC – read 3 mails at 9", "30 17 * * mon,thu", "read 3 mails at 9"),
        ("hourly check the disks", "0 * * * *", "check the disks"),
    ],
)
def test_the_rest_is_what_it_does(text: str, words: str, rest: str) -> None:
    assert read_sentence(text) == (read_rule(words), rest)


@pytest.mark.parametrize("text", ["", "Look at failed runs every day at 8.", "30m of silence"])
def test_a_text_that_begins_otherwise_has_no_schedule(text: str) -> None:
    assert read_sentence(text) == (None, text)
