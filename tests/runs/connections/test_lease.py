"""The access token of a connection is given while it is good, and renewed in time: once, by the process that needs it first."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User

from agents.exceptions import NetworkRefused, NotConnected, ProviderAway, Retry
from agents.guards.network import outside_refused
from agents.kernel.redaction import redacted
from runs.connections import lease as leases
from runs.connections import protocol
from runs.connections.lease import CLAIM, lease
from runs.models import Connection
from tests.support.connections import connected, everything_stored, later, new_connection
from tests.support.oauth_server import CLIENT_SECRET, OAuthServer
from triggers.sources.secrets import keys_in_use, reencrypt

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_this_session")]


def test_a_token_is_given_as_long_as_it_is_good(provider: OAuthServer, django_assert_num_queries: Any) -> None:
    connected(provider)

    with django_assert_num_queries(1):
        given = lease("mail")

    assert given.token == provider.given[0]
    assert list(given.hosts) == [provider.host]
    assert not provider.asked


def test_a_token_is_renewed_before_it_ends(provider: OAuthServer) -> None:
    made = connected(provider, left=200)

    given = lease("mail")

    made.refresh_from_db()
    assert given.token == provider.given[-2] != provider.given[0]
    assert [one["grant_type"] for one in provider.asked] == ["refresh_token"]
    assert made.revision == 2
    assert lease("mail") == given
    assert len(provider.asked) == 1


def test_the_refresh_token_that_a_provider_rotates_is_the_next_one_that_is_sent(provider: OAuthServer) -> None:
    made = connected(provider, left=200)

    for _ in range(3):
        lease("mail")
        later(made, 3500)

    assert len({one["refresh_token"] for one in provider.asked}) == 3


def test_a_provider_that_does_not_rotate_keeps_its_refresh_token(provider: OAuthServer) -> None:
    provider.rotates = False
    made = connected(provider, left=200)

    for _ in range(2):
        lease("mail")
        later(made, 3500)

    assert len({one["refresh_token"] for one in provider.asked}) == 1


def test_a_process_that_dies_while_it_renews_holds_up_no_one_for_longer_than_its_claim(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)
    assert made.expires_at
    Connection.objects.filter(pk=made.pk).update(
        claim="00000000-0000-0000-0000-000000000001", claimed_until=made.expires_at + CLAIM, unanswered=1
    )
    later(made, CLAIM.total_seconds())

    given = lease("mail")

    assert given.token == provider.given[-2]
    made.refresh_from_db()
    assert made.unanswered == 0


def test_a_lost_answer_is_tried_again_where_the_provider_allows_for_it(provider: OAuthServer) -> None:
    provider.rotates = False
    provider.loses_answers = 1
    made = connected(provider, left=-5)

    with pytest.raises(Retry, match="has no token at the moment"):
        lease("mail")
    made.refresh_from_db()
    assert (made.state, made.failures, made.unanswered) == ("connected", 1, 1)

    later(made, 60)
    assert lease("mail").token == provider.given[-1]


def test_a_lost_answer_with_a_new_refresh_token_ends_in_words_and_in_no_loop(provider: OAuthServer) -> None:
    provider.loses_answers = 1
    made = connected(provider, left=-5)
    with pytest.raises(Retry):
        lease("mail")
    later(made, 60)

    with pytest.raises(
        NotConnected, match=r"is refused: .*The answer to an earlier request was lost.*Connect it again"
    ):
        lease("mail")
    for _ in range(5):
        with pytest.raises(NotConnected):
            lease("mail")

    made.refresh_from_db()
    assert (made.state, made.access_token, made.refresh_token) == ("refused", None, None)
    assert len(provider.asked) == 2


def test_an_access_that_was_withdrawn_at_the_provider_is_refused_and_asked_for_no_more(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)
    provider.withdraw()

    for _ in range(3):
        with pytest.raises(NotConnected, match="invalid_grant to its refresh token: the access was withdrawn there"):
            lease("mail")

    made.refresh_from_db()
    assert made.state == "refused"
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 503}, "it answers 503"),
        ({"refuses": "invalid_client"}, "the provider answers invalid_client: check its client id"),
        ({"refuses": "<script>" + "x" * 90}, "the provider answers an unknown error"),
        ({"loses_answers": 99}, "RemoteProtocolError"),
    ],
    ids=["5xx", "wrong client", "nonsense", "cut off"],
)
def test_a_provider_that_fails_is_asked_again_after_a_pause_that_grows(
    fault: dict[str, Any], reason: str, provider: OAuthServer
) -> None:
    provider.rotates = False
    made = connected(provider, left=-5)
    vars(provider).update(fault)
    pauses = []

    for tries in range(1, 4):
        with pytest.raises(Retry, match="has no token at the moment") as away:
            lease("mail")
        with pytest.raises(Retry):
            lease("mail")  # within the pause no request is sent
        assert len(provider.asked) == tries
        assert away.value.after is not None
        pauses.append(away.value.after)
        later(made, pauses[-1].total_seconds() + 1)

    made.refresh_from_db()
    assert made.state == "connected" and made.failures == 3 and reason in made.reason
    assert pauses == sorted(pauses) and pauses[-1] > pauses[0] * 2

    vars(provider).update(status=200, refuses="", loses_answers=0)
    later(made, 600)
    assert lease("mail").token == provider.given[-1]
    made.refresh_from_db()
    assert (made.failures, made.failing_since, made.reason) == (0, None, "")


def test_while_a_provider_fails_the_token_serves_as_long_as_it_lasts(
    provider: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "FIRST_PAUSE", timedelta(minutes=5))
    connected(provider, left=200)
    provider.status = 500

    assert [lease("mail").token for _ in range(5)] == [provider.given[0]] * 5
    assert len(provider.asked) == 1


def test_a_provider_that_does_not_answer_is_given_up_in_time(
    provider: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SECONDS", 0.3)
    provider.gate = threading.Event()
    connected(provider, left=-5)

    with pytest.raises(Retry, match="no complete answer within"):
        lease("mail")
    provider.gate.set()


def test_a_step_that_may_not_be_repeated_gets_no_retry(provider: OAuthServer) -> None:
    connected(provider, left=-5)
    provider.status = 500

    with pytest.raises(ProviderAway):
        lease("mail", may_retry=False)


def test_a_token_that_a_host_refuses_is_renewed_although_its_time_is_not_over(provider: OAuthServer) -> None:
    made = connected(provider, left=3000)

    renewed = lease("mail", refused=provider.given[0])

    assert renewed.token == provider.given[-2]
    assert len(provider.asked) == 1
    # A host that refuses every token makes no loop of renewals.
    assert lease("mail", refused=renewed.token) == renewed
    assert len(provider.asked) == 1
    made.refresh_from_db()
    assert made.state == "connected"


def test_a_lifetime_that_is_none_makes_no_loop_of_renewals(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)
    provider.says_it_lasts = -30  # a clock that is behind

    for _ in range(5):
        lease("mail")

    made.refresh_from_db()
    assert made.expires_at is None
    assert len(provider.asked) == 1


def test_a_token_without_a_refresh_token_serves_to_its_end_and_then_says_what_to_do(provider: OAuthServer) -> None:
    provider.gives_refresh = False
    made = connected(provider, left=100)
    assert lease("mail").token == provider.given[0]
    later(made, 99)

    with pytest.raises(NotConnected, match=r"is expired: .*no refresh token\. Connect it again"):
        lease("mail")

    made.refresh_from_db()
    assert made.state == "expired"
    assert not provider.asked


def test_an_application_gets_a_new_token_by_its_secret(provider: OAuthServer) -> None:
    made = connected(provider, left=-5, grant="client_credentials")
    Connection.objects.filter(pk=made.pk).update(refresh_token=None)

    assert lease("mail").token == provider.given[-1]
    assert provider.asked == [{"grant_type": "client_credentials", "scope": "mail.read mail.send"}]


@pytest.mark.parametrize("state", ["new", "revoked"])
def test_a_connection_that_no_one_has_connected_gives_nothing(state: str, provider: OAuthServer) -> None:
    made = new_connection(provider)
    Connection.objects.filter(pk=made.pk).update(state=state)

    with pytest.raises(NotConnected, match=f"is {state}. Connect it again in the admin"):
        lease("mail")
    with pytest.raises(NotConnected, match="there is no connection 'post'"):
        lease("post")


def test_the_connection_of_a_person_who_may_no_longer_log_in_gives_nothing(provider: OAuthServer) -> None:
    ada = User.objects.create_user("ada", is_staff=True)
    connected(provider, owner="ada")
    assert lease("mail").token

    ada.is_active = False
    ada.save()

    with pytest.raises(NotConnected, match="belongs to 'ada', who may not log in"):
        lease("mail")


def test_no_token_stands_anywhere_in_the_clear(provider: OAuthServer, caplog: Any, capfd: Any) -> None:
    made = connected(provider, left=-5)
    provider.refuses = "server_error"
    with pytest.raises(Retry) as away:
        lease("mail")
    provider.refuses = ""
    later(made, 600)
    given = lease("mail")
    later(made, 3600)
    provider.withdraw()
    with pytest.raises(NotConnected) as refused:
        lease("mail")

    made.refresh_from_db()
    said = "\n".join(
        [
            everything_stored(),
            caplog.text,
            *capfd.readouterr(),
            repr(given),
            repr(made),
            str(away.value),
            str(refused.value),
        ]
    )
    assert len(provider.given) == 4
    assert not [secret for secret in [*provider.given, CLIENT_SECRET] if secret in said]
    # And what echoes them is redacted.
    assert redacted(f"a b {provider.given[-1]} {provider.given[-2]}") == "a b [secret] [secret]"
    assert timedelta(seconds=1) <= (away.value.after or timedelta())


def test_a_key_that_is_gone_is_said_and_holds_up_no_one(provider: OAuthServer, settings: Any) -> None:
    made = connected(provider, left=-5)
    keys, settings.WAKEFUL_ENCRYPTION_KEYS = settings.WAKEFUL_ENCRYPTION_KEYS, [Fernet.generate_key().decode()]

    with pytest.raises(NotConnected, match="no key of WAKEFUL_ENCRYPTION_KEYS decrypts its secrets"):
        lease("mail")

    made.refresh_from_db()
    assert made.claim is None
    settings.WAKEFUL_ENCRYPTION_KEYS = keys
    assert lease("mail").token == provider.given[-2]


def test_an_error_that_is_not_the_providers_gives_the_claim_back(
    provider: OAuthServer,
) -> None:
    made = connected(provider, left=-5)
    with pytest.raises(NetworkRefused), outside_refused("no network here ({event})"):
        lease("mail")

    made.refresh_from_db()
    assert (made.claim, made.unanswered, made.failing_since) == (None, 0, None)
    assert lease("mail").token == provider.given[-2]


def test_a_provider_that_answers_a_secret_as_its_error_has_it_stored_nowhere(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)
    provider.refuses = provider.given[1]

    with pytest.raises(Retry, match="answers an unknown error"):
        lease("mail")

    made.refresh_from_db()
    assert made.failures == 1
    assert provider.given[1] not in everything_stored()


@pytest.mark.parametrize("keys", [1, 2])
def test_new_keys_encrypt_the_tokens_again(keys: int, provider: OAuthServer, settings: Any) -> None:
    made = connected(provider)
    settings.WAKEFUL_ENCRYPTION_KEYS = [Fernet.generate_key().decode(), *settings.WAKEFUL_ENCRYPTION_KEYS]
    assert not keys_in_use().only_first

    assert reencrypt(by="cli:test") == 3

    settings.WAKEFUL_ENCRYPTION_KEYS = settings.WAKEFUL_ENCRYPTION_KEYS[:keys]
    assert keys_in_use().only_first
    assert lease(made.name).token == provider.given[0]


def test_what_a_provider_writes_besides_its_tokens_can_be_stored(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)
    provider.grants[0].scope = "mail.read \x00 a,b"

    lease("mail")

    made.refresh_from_db()
    assert made.granted == ["mail.read", "a", "b"]
