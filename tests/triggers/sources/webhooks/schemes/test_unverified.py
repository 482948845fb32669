import pytest

from tests.support.deliveries import take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.receive import Misconfigured
from triggers.sources.webhooks.scheme import schemes


def test_an_unverified_source_accepts_any_body() -> None:
    receipt = take("none", b"hello", {}, settings={"unverified": True})

    assert receipt.secret is None
    assert receipt.event.data_error.startswith("kept raw: not JSON")


@pytest.mark.parametrize("settings", [{}, {"unverified": False}, {"unverified": "true"}])
def test_a_source_without_the_unverified_setting_accepts_no_delivery(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings, match="unverified"):
        schemes()["none"].clean_settings(settings)
    with pytest.raises(Misconfigured):
        take("none", b"hello", {}, settings=settings)
