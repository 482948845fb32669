"""An installation of a GitHub App: the app proves itself by its key, and gets tokens that last for an hour, as long as it is installed."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.core.exceptions import ValidationError

from agents.exceptions import NotConnected, Retry
from agents.kernel.redaction import redacted
from runs.connections.catalog import providers
from runs.connections.consent import NoConsent, connect_application
from runs.connections.edit import change_connection, create_connection
from runs.connections.ending import revoke_connection, test_connection
from runs.connections.lease import lease
from runs.connections.signs.ended_connections import ENDED_CONNECTIONS
from runs.models import Connection
from tests.support.connections import everything_stored, later
from tests.support.github_app import APP, INSTALLATION, GitHubApp, serving_github_app
from tests.support.rsa_keys import pem
from tests.support.secrets import forgotten as forgotten

test_connection.__test__ = False  # type: ignore[attr-defined]  # a service
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_this_session")]


@pytest.fixture
def hub(settings: Any, forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubApp]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    with serving_github_app(monkeypatch) as server:
        yield server


def make(**more: Any) -> Connection:
    values = {"client_id": APP, "client_secret": pem(), "settings": {"installation": INSTALLATION}, **more}
    return create_connection(name="github", provider="github_app", grant="client_credentials", by="test", **values)


def connected(**more: Any) -> Connection:
    return connect_application(make(**more).pk, by="admin:ada")


def found() -> list[tuple[str, str]]:
    from config.health.problems import problems
    from config.health.situation import read_situation

    return [
        (one.name, one.text) for one in problems(read_situation()) if one.name.split(":")[0] in ENDED_CONNECTIONS.kinds
    ]


def test_an_installation_gives_a_token_for_an_hour_with_its_permissions_in_words(hub: GitHubApp) -> None:
    made = connected()

    assert (made.state, made.granted) == ("connected", ["checks:read", "issues:write", "metadata:read"])
    assert made.expires_at and made.refreshed_at
    assert made.expires_at - made.refreshed_at == timedelta(hours=1)
    given = lease("github")
    assert (given.token, list(given.hosts)) == (hub.tokens[0], [hub.host])
    assert providers()["github_app"].words_of("checks:read") == "See whether checks pass"


def test_the_key_the_proof_and_the_token_stand_nowhere_in_the_clear(hub: GitHubApp) -> None:
    connected()

    secret = [hub.tokens[0], hub.proofs[0], pem().splitlines()[1]]
    stored = everything_stored()
    assert not [one for one in secret if one in stored]
    assert not [
        one
        for one in (hub.tokens[0], hub.proofs[0], pem().strip())
        if one in redacted(f"{hub.tokens} {hub.proofs} {pem()}")
    ]


def test_the_token_is_renewed_before_it_ends_and_when_a_host_refuses_it(hub: GitHubApp) -> None:
    made = connected()
    later(made, 3400)
    second = lease("github").token
    later(made, 20)

    assert lease("github", refused=second).token == hub.tokens[2]
    assert len(hub.proofs) == 3
    assert test_connection(made.pk, by="ada")


def test_it_lasts_as_long_as_its_own_clock_says(hub: GitHubApp) -> None:
    hub.ahead = timedelta(minutes=4)
    made = connected()

    assert made.expires_at and made.refreshed_at
    assert made.expires_at - made.refreshed_at == timedelta(hours=1)


def test_only_the_chosen_permissions_are_requested(hub: GitHubApp) -> None:
    made = connected(scopes=["checks:read"])

    assert hub.asked == [{"permissions": {"checks": "read"}}] and made.granted == ["checks:read"]


def test_of_a_permission_that_is_chosen_twice_the_higher_level_is_requested(hub: GitHubApp) -> None:
    assert connected(scopes=["issues:write", "issues:read"]) and hub.asked == [{"permissions": {"issues": "write"}}]


@pytest.mark.parametrize("scope", ["issues", "Issues:read", "issues:all", "repo"])
def test_an_invalid_permission_is_refused_and_does_not_give_all_that_the_app_has(hub: GitHubApp, scope: str) -> None:
    with pytest.raises(ValidationError, match="is no permission. Write it such as issues:read"):
        make(scopes=[scope])
    made = make(scopes=["checks:read"])
    with pytest.raises(ValidationError, match="is no permission"):
        change_connection(made.pk, client_id=APP, client_secret="", scopes=[scope], settings=made.settings, by="ada")

    assert hub.asked == []


@pytest.mark.parametrize(
    "change, words",
    [
        ({"is_installed": False}, "knows no such installation"),
        ({"is_suspended": True}, "has suspended the installation. Unsuspend it there"),
    ],
)
def test_an_installation_that_has_ended_is_a_problem_with_a_remedy(
    hub: GitHubApp, change: dict[str, bool], words: str
) -> None:
    made = connected()
    vars(hub).update(change)
    later(made, 3590)

    with pytest.raises(NotConnected, match=words):
        lease("github")

    [(name, text)] = found()
    assert name == "connection-ended:github" and words in text
    asked = len(hub.proofs)
    with pytest.raises(NotConnected):
        lease("github")
    assert len(hub.proofs) == asked
    vars(hub).update(is_installed=True, is_suspended=False)
    assert connect_application(made.pk, by="admin:ada").state == "connected"
    assert found() == []


def test_a_limit_of_rate_is_waited_for(hub: GitHubApp) -> None:
    made = connected()
    hub.status = 403
    later(made, 3590)

    with pytest.raises(Retry):
        lease("github")

    hub.status = 201
    later(made, 10)
    assert lease("github").token == hub.tokens[-1]


@pytest.mark.parametrize(
    "more, words",
    [
        (lambda: {"client_secret": pem("another")}, "Check the app's ID"),
        (lambda: {"client_id": "1"}, "Check the app's ID and its private key"),
        (lambda: {"scopes": ["contents:write"]}, "Give the app these permissions there, or choose less"),
        (lambda: {"settings": {"installation": "1"}}, "knows no such installation"),
    ],
)
def test_what_github_refuses_names_the_remedy(hub: GitHubApp, more: Callable[[], dict[str, Any]], words: str) -> None:
    with pytest.raises(NoConsent, match=words):
        connected(**more())

    assert Connection.objects.get().state == "new"


def of_curve() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "more, field",
    [
        (lambda: {"client_secret": "no key"}, "client_secret"),
        (lambda: {"client_secret": ""}, "client_secret"),
        (lambda: {"client_secret": of_curve()}, "client_secret"),
        (lambda: {"client_secret": pem() + "x" * 20_000}, "client_secret"),
        (lambda: {"settings": {}}, "installation"),
        (lambda: {"settings": {"installation": "../1"}}, "installation"),
        (lambda: {"client_id": ""}, "client_id"),
    ],
)
def test_a_wrong_field_is_named(hub: GitHubApp, more: Callable[[], dict[str, Any]], field: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        make(**more())

    assert list(wrong.value.message_dict) == [field]
    assert "PRIVATE" not in str(wrong.value)


def test_another_installation_needs_the_key_again(hub: GitHubApp) -> None:
    made = connected()
    same: dict[str, Any] = {"client_id": APP, "scopes": [], "by": "ada"}

    with pytest.raises(ValidationError, match="Enter the secret again"):
        change_connection(made.pk, client_secret="", settings={"installation": "2"}, **same)
    changed = change_connection(made.pk, client_secret=pem(), settings={"installation": "2"}, **same)

    assert changed.state == "new"


def test_a_revoked_one_gives_no_token(hub: GitHubApp) -> None:
    made = connected()

    assert "Remove the access there, too: https://github.com/settings/installations" in revoke_connection(
        made.pk, by="ada"
    )
    with pytest.raises(NotConnected):
        lease("github")
