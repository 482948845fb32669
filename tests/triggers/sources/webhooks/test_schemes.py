"""What every scheme promises, whichever it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.deliveries import take
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Misconfigured
from triggers.sources.webhooks.scheme import schemes


def test_every_scheme_is_known_by_name() -> None:
    assert set(schemes()) >= {"bearer", "github", "hmac", "none", "standard_webhooks"}


@given(
    st.dictionaries(
        st.sampled_from(["header", "template", "unverified"]) | st.text(), st.none() | st.text() | st.booleans()
    )
)
def test_any_settings_are_usable_or_misconfigured(settings: dict[str, object]) -> None:
    for kind in schemes():
        try:
            take(kind, b"{}", {}, "secret", settings=settings)
        except (Misconfigured, Rejected) as refusal:
            assert str(refusal)


@pytest.mark.parametrize("kind", [name for name, scheme in schemes().items() if scheme.needs_secret])
def test_a_form_can_be_made_of_every_scheme(kind: str) -> None:
    scheme = schemes()[kind]

    assert scheme.label and scheme.help_text
    assert all(field.label for field in scheme.fields)
    assert scheme.clean_secret(scheme.new_secret())
    assert scheme.clean_settings({field.name: field.default for field in scheme.fields}) == scheme.clean_settings({})
