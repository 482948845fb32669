import pytest

from tests.support.deliveries import take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.receive import Misconfigured
from triggers.sources.webhooks.scheme import schemes


def test_it_accepts_anything_once_that_was_chosen() -> None:
    receipt = take("none", b"hello", {}, settings={"unverified": True})

    assert receipt.secret is None
    assert receipt.event.data_error.startswith("kept raw: not JSON")


@pytest.mark.parametrize("settings", [{}, {"unverified": False}, {"unverified": "true"}])
def test_it_accepts_nothing_unless_that_was_chosen(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings, match="unverified"):
        schemes()["none"].clean_settings(settings)
    with pytest.raises(Misconfigured):
        take("none", b"hello", {}, settings=settings)
