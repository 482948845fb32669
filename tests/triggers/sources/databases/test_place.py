"""Where the reading of a slot goes on, and what is said to be missing."""

from dataclasses import replace

import pytest

from triggers.sources.databases.place import Place, resume, timeline_at
from triggers.sources.databases.wire import System, lsn_of, lsn_text

STORED = Place(system="7", timeline=1, slot="shop", lsn=100, commit=150, done=3)
NOW = System(id="7", timeline=1, lsn=500, database="shop")
PROMOTED = replace(NOW, timeline=2)


def test_a_position_survives_its_storage() -> None:
    assert Place.load(STORED.dump()) == STORED
    assert (lsn_text(lsn_of("16/B374D848")), Place.load(None)) == ("16/B374D848", None)


@pytest.mark.parametrize(
    ("stored", "now", "ends", "confirmed", "lsn", "done", "said"),
    [
        (None, NOW, {}, 80, 80, 0, ""),
        (STORED, NOW, {}, 80, 100, 3, ""),
        (STORED, NOW, {}, 100, 100, 3, ""),
        (replace(STORED, slot="other"), NOW, {}, 300, 300, 0, ""),
        (STORED, NOW, {}, 300, 300, 0, "between 0/64 and 0/12C have no events"),
        (STORED, replace(NOW, id="8"), {}, 300, 300, 0, "another one than before"),
        (STORED, PROMOTED, {1: 400}, 80, 100, 3, ""),
        (STORED, PROMOTED, {1: 150}, 80, 100, 0, "between 0/96 and 0/96 that it has lost"),
        (STORED, PROMOTED, {1: 90}, 80, 90, 0, "between 0/5A and 0/96 that it has lost"),
        (STORED, PROMOTED, {1: 90}, 95, 95, 0, "that it has lost; changes that were committed between 0/5A and 0/5F"),
        (STORED, PROMOTED, {}, 300, 300, 0, "another one than before"),
        (STORED, replace(NOW, lsn=90), {}, 80, 90, 0, "was set back"),
    ],
)
def test_reading_goes_on_where_it_stopped_and_a_gap_is_said(
    stored: Place | None, now: System, ends: dict[int, int], confirmed: int, lsn: int, done: int, said: str
) -> None:
    place, gap = resume(stored, now, ends, confirmed, "shop")

    assert (place.lsn, place.done, place.timeline) == (lsn, done, now.timeline)
    assert said in gap and bool(said) == bool(gap)


def test_a_change_keeps_its_timeline_after_a_failover() -> None:
    ends = {1: 100, 2: 200}

    assert [timeline_at(lsn, 3, ends) for lsn in (99, 100, 199, 200)] == [1, 2, 2, 3]
