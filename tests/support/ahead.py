"""The database's clock ahead of itself, for dispatch."""

from datetime import timedelta

import pytest

from triggers.dispatch import batch

LOCK_ROWS = batch.LOCK_ROWS


def set_ahead(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    ahead = f"clock_timestamp() + interval '{by.total_seconds()} s'"
    monkeypatch.setattr(batch, "LOCK_ROWS", LOCK_ROWS.replace("clock_timestamp()", ahead))
