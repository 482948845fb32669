"""Erasure reaches the keys for which switches wait."""

import pytest

from runs.retention.erasure import ERASED
from tests.support.switches import make_switch, work
from tests.support.triggers import make_event
from triggers.models import Switch, SwitchTimer
from triggers.retention.erasure import Selection, erase

pytestmark = pytest.mark.django_db


def test_the_keys_of_erased_events_are_forgotten_and_others_are_kept() -> None:
    make_switch(types="measured", key="event.data.device", filter="event.data.ok")
    for subject, data in (
        ("ada", {"device": "a", "ok": True}),
        ("bob", {"device": "b", "ok": True}),
        ("cy", {"ok": 1}),
    ):
        make_event(type="measured", subject=subject, data=data)
    work()
    assert Switch.objects.get().error

    erase(Selection(subject="ada"), by="test")

    assert list(SwitchTimer.objects.values_list("key", flat=True)) == ["b"]
    assert Switch.objects.get().error == ERASED


def test_a_key_that_is_listed_is_a_setting_and_is_expected_still() -> None:
    make_switch(types="ci.passed", by="15:00", key="event.subject", keys="ada, bob")
    make_event(type="ci.passed", subject="ada")
    work()

    erase(Selection(subject="ada"), by="test")

    assert set(SwitchTimer.objects.values_list("key", flat=True)) == {"ada", "bob"}
