"""Where the reading of a slot goes on, and what is reported as missing."""

from dataclasses import replace

import pytest

from triggers.sources.continuity import Reason
from triggers.sources.databases.place import Last, Place, beginning, resume, timeline_at
from triggers.sources.databases.proof import Proof, SetBack
from triggers.sources.databases.wire import System, lsn_of, lsn_text

LAST = Last(publication="shop", lsn=150, mark="7 12ab")
STORED = Place(system="7", timeline=1, slot="shop", lsn=100, commit=150, done=3, last=LAST)
WHOLE = replace(STORED, lsn=160, commit=0, done=0)
NOTHING_CAME = replace(WHOLE, last=Last(publication="shop", lsn=120))
NOW = System(id="7", timeline=1, lsn=500, database="shop")
PROMOTED = replace(NOW, timeline=2)


def test_a_position_survives_its_storage() -> None:
    assert Place.load(STORED.dump(), LAST.dump()) == STORED
    assert Place.load(STORED.dump()) == replace(STORED, last=None)
    assert (lsn_text(lsn_of("16/B374D848")), Place.load(None)) == ("16/B374D848", None)


@pytest.mark.parametrize(
    ("stored", "now", "ends", "confirmed", "lsn", "done", "message", "reason"),
    [
        (None, NOW, {}, 80, 80, 0, "", None),
        (STORED, NOW, {}, 80, 100, 3, "", None),
        (STORED, NOW, {}, 100, 100, 3, "", None),
        (replace(STORED, slot="other"), NOW, {}, 300, 300, 0, "", None),
        (STORED, NOW, {}, 300, 300, 0, "between 0/64 and 0/12C have no events", Reason.UNKNOWN),
        (STORED, replace(NOW, id="8"), {}, 300, 300, 0, "another one than before", Reason.UNKNOWN),
        (STORED, PROMOTED, {1: 400}, 80, 100, 3, "", None),
        (STORED, PROMOTED, {1: 150}, 80, 100, 0, "between 0/96 and 0/96 that it has lost", Reason.RESTORED),
        (STORED, PROMOTED, {1: 90}, 80, 90, 0, "between 0/5A and 0/96 that it has lost", Reason.RESTORED),
        (STORED, PROMOTED, {1: 90}, 95, 95, 0, "has lost; changes that were committed between 0/5A", Reason.RESTORED),
        (STORED, PROMOTED, {}, 300, 300, 0, "another one than before", Reason.RESTORED),
        (STORED, replace(NOW, lsn=90), {}, 80, 80, 0, "was set back", Reason.RESTORED),
        (NOTHING_CAME, NOW, {}, 120, 160, 0, "", None),
        (NOTHING_CAME, NOW, {}, 110, 110, 0, "was set back", Reason.RESTORED),
    ],
)
def test_reading_goes_on_where_it_stopped_and_a_gap_is_reported(
    stored: Place | None,
    now: System,
    ends: dict[int, int],
    confirmed: int,
    lsn: int,
    done: int,
    message: str,
    reason: Reason | None,
) -> None:
    place, gap = resume(stored, beginning(now, confirmed, "shop", "shop"), now, ends)

    assert (place.lsn, place.done, place.timeline) == (lsn, done, now.timeline)
    assert (gap.reason if gap else None) == reason
    assert gap is None or message in gap.detail


def test_the_last_sent_change_is_no_proof_with_another_publication_or_after_a_failover_that_lost_it() -> None:
    other, _ = resume(WHOLE, beginning(NOW, 80, "shop", "other"), NOW, {})
    cut, _ = resume(WHOLE, beginning(PROMOTED, 80, "shop", "shop"), PROMOTED, {1: 155})
    whole, _ = resume(WHOLE, beginning(PROMOTED, 80, "shop", "shop"), PROMOTED, {1: 170})

    assert (other.last, cut.last, whole.last) == (None, None, LAST)
    assert (other.start, cut.start, whole.start) == (160, 155, 150)


@pytest.mark.parametrize(
    ("place", "confirmed", "sent", "is_same"),
    [
        (WHOLE, 150, [(150, "7 12ab"), (160, "8 1")], True),
        (WHOLE, 160, [(170, "8 1")], True),  # the server knows that it is recorded
        (WHOLE, 80, [(150, "7 12ac")], False),
        (WHOLE, 80, [(170, "8 1")], False),
        (WHOLE, 80, [(150, "7 12ab"), (155, "8 1")], False),
        (WHOLE, 155, [(156, "8 1")], False),
        (STORED, 80, [(150, "7 12ab"), (160, "8 1")], True),
        (STORED, 80, [(150, "8 1")], False),
        (NOTHING_CAME, 120, [(160, "8 1")], True),
        (NOTHING_CAME, 120, [(130, "8 1")], False),
        (replace(WHOLE, last=None), 80, [(160, "8 1")], True),
    ],
)
def test_a_server_with_other_changes_at_recorded_places_was_set_back(
    place: Place, confirmed: int, sent: list[tuple[int, str]], is_same: bool
) -> None:
    proof = Proof(place, confirmed)
    try:
        for lsn, mark in sent:
            assert proof.is_last(lsn, mark) is (mark == LAST.mark)
    except SetBack:
        assert not is_same
    else:
        assert is_same


def test_a_server_that_has_sent_all_and_not_what_was_recorded_last_was_set_back() -> None:
    proof = Proof(WHOLE, 80)
    proof.passed(159)
    with pytest.raises(SetBack):
        proof.passed(160)
    proof.is_last(LAST.lsn, LAST.mark)
    proof.passed(160)


def test_a_change_keeps_its_timeline_after_a_failover() -> None:
    ends = {1: 100, 2: 200}

    assert [timeline_at(lsn, 3, ends) for lsn in (99, 100, 199, 200)] == [1, 2, 2, 3]
