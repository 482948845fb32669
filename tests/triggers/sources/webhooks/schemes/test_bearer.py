import pytest

from tests.support.deliveries import take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

TOKEN = "s3cr3t-token"


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
def test_the_scheme_of_the_token_is_case_insensitive(value: str) -> None:
    receipt = take("bearer", b"{}", {"Authorization": value}, "other", TOKEN)

    assert receipt.secret and receipt.secret.id == 2
    assert receipt.event.headers["authorization"] == "[redacted]"


def test_a_header_of_ones_own_holds_the_token_alone() -> None:
    settings = {"header": "X-Monitor", "id_header": "X-Id"}

    receipt = take("bearer", b"{}", {"X-Monitor": TOKEN, "X-Id": "a-1"}, TOKEN, settings=settings)

    assert (receipt.event.ce_id, receipt.event.headers["x-monitor"]) == ("a-1", "[redacted]")


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer ÿ", f"Bearer x {TOKEN}"]
)
def test_a_wrong_authorization_header_is_rejected(value: str) -> None:
    with pytest.raises(Rejected):
        take("bearer", b"{}", {"Authorization": value}, TOKEN)


@pytest.mark.parametrize("secret", ["", "two words", "schlüssel", "a\nb"])
def test_a_token_that_cannot_travel_in_a_header_is_refused(secret: str) -> None:
    with pytest.raises(InvalidSettings, match="printable ASCII"):
        schemes()["bearer"].clean_secret(secret)
