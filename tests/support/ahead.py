"""The database's clock ahead of itself, for dispatch."""

from datetime import timedelta

import pytest

from triggers.dispatch import begin

BEGIN = begin.BEGIN


def set_ahead(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    ahead = f"clock_timestamp() + interval '{by.total_seconds()} s'"
    monkeypatch.setattr(begin, "BEGIN", BEGIN.replace("clock_timestamp()", ahead))
