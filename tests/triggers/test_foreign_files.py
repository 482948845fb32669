"""Files of other programs: which characters end a line, and how large and how slow to read one may be."""

from time import process_time

import pytest

from runs.api.strict_json import Unreadable
from triggers.exceptions import Invalid
from triggers.transfer.foreign.read import read


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028"])
def test_no_character_but_a_line_feed_ends_a_line(character: str) -> None:
    brought = read("crontab", f"0 3 * * *  echo {character}* * * * *  other\n".encode(), agent="")

    assert [one["data"]["command"] for one in brought.schedules] == [f"echo {character}* * * * *  other"]


@pytest.mark.parametrize("before", [b"", b"# Nightly.\r\n", b"TZ=UTC\r\n"])
def test_a_byte_order_mark_and_lines_of_windows_are_no_part_of_a_job(before: bytes) -> None:
    brought = read("crontab", b"\xef\xbb\xbf" + before + b"0 3 * * *  night\r\n", agent="")

    assert [one["data"]["command"] for one in brought.schedules] == ["night"] and not brought.problems


def test_the_time_for_a_crontab_rises_with_its_length_alone() -> None:
    began = process_time()

    read("crontab", b"A= x" + b" " * 200_000 + b"x\n", agent="")

    assert process_time() - began < 5  # where each blank looks at all that follow, it is a minute


def test_what_is_too_large_for_one_transaction_is_refused() -> None:
    with pytest.raises(Unreadable, match="MB"):
        read("crontab", b"#" * (10 * 2**20 + 1), agent="")
    with pytest.raises(Invalid, match="split the file"):
        read("crontab", b"@reboot x\n" * 10_001, agent="")
    jobs = b"0 3 * * *  x\n" + b"A=" + b"x" * 100_000 + b"\n0 3 * * *  y\n"
    assert read("crontab", jobs, agent="").problems == [
        "line 3: its command and its variables are longer than 100,000 characters; put them into a script"
    ]
