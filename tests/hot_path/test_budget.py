"""What each leg of a wake costs, by count, in `budget.txt`: no clock, so a busy machine changes nothing.

A change that raises a figure writes the file (WRITE=1 pytest tests/hot_path) and gives the reason in its commit.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from runs.db import nudge, ready_runs
from tests.hot_path.index_entries import index_entries
from tests.hot_path.legs import LEGS
from tests.hot_path.recorder import COUNTS_WAL, Cost
from tests.support import pristine
from tests.support.durable import Lab
from tests.support.servers import TestServers

pytestmark = pytest.mark.django_db(transaction=True)

FILE = Path(__file__).with_name("budget.txt")
HEAD = "# leg, statements, round trips, records of WAL, bytes of WAL, index entries"
# Numbers and times are longer or shorter, a page may be pruned, and a sequence writes a record for each 32 of its numbers.
RECORDS, BYTES = 5, 500


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Lab:
    """On tables whose files hold nothing of an earlier test: what is pruned there would be WAL of this one. No NOTIFY is left out
    because one was sent a moment ago."""
    settings.WAKEFUL_NOTIFY_THROTTLE = timedelta(0)
    monkeypatch.setattr(nudge, "LATER", 0.0)
    monkeypatch.setattr(nudge, "_owed", False)
    pristine.make_empty()
    ready_runs.hints.by_queue.clear()
    return Lab(monkeypatch)


def read() -> dict[str, Cost]:
    lines = [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {leg: Cost(*map(int, figures)) for leg, *figures in lines}


@pytest.mark.parametrize("name", LEGS)
def test_a_leg_costs_what_its_budget_says(name: str, lab: Lab, servers: TestServers) -> None:
    recorder = LEGS[name](lab)
    server, cost = servers.embedded.postgres, recorder.cost
    counts_wal = connection.connection.info.server_version >= COUNTS_WAL
    if server and counts_wal:
        cost = cost._replace(index_entries=index_entries(server, recorder.wal))
    if os.environ.get("WRITE"):
        write(read() | {name: cost} if FILE.exists() else {name: cost})
    budget = read()[name]

    assert cost[:2] == budget[:2]
    if counts_wal:
        assert abs(cost.wal_records - budget.wal_records) <= RECORDS
        assert abs(cost.wal_bytes - budget.wal_bytes) <= BYTES
    if server and counts_wal:
        assert cost.index_entries == budget.index_entries


def write(costs: dict[str, Cost]) -> None:
    width = max(map(len, LEGS))
    lines = [f"{leg:{width}} {' '.join(f'{figure:6}' for figure in costs[leg])}" for leg in LEGS if leg in costs]
    FILE.write_text("\n".join([HEAD, *lines]) + "\n")


def test_every_leg_has_a_budget() -> None:
    assert set(read()) == set(LEGS)
