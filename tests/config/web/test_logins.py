"""Passwords are not guessed quickly, and who logged in, or failed to, is on record."""

from threading import Event, Thread
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.models import LoginFailure
from config.web.logins import LIMIT, LIMIT_OF_ORIGIN
from config.web.passwords import LANE, STRANGERS, BoundedHasher, Busy
from runs.models import AuditEntry

pytestmark = pytest.mark.django_db
HERE, ELSEWHERE = "198.51.100.7", "203.0.113.9"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_superuser("ada", password="right")


def attempt(client: Client, password: str, username: str = "ada", address: str = HERE, **headers: str) -> Any:
    fields = {"username": username, "password": password}
    return client.post("/admin/login/", fields, REMOTE_ADDR=address, headers=headers)


def fail_often(times: int = LIMIT, **how: Any) -> None:
    for _ in range(times):
        assert attempt(Client(), "wrong", **how).status_code == 200


def test_after_ten_failures_a_name_is_refused_to_that_address_even_with_the_right_password(ada: User) -> None:
    fail_often()

    refused = attempt(Client(), "right")

    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 600
    assert "Try again" in refused.content.decode()


def test_a_stranger_does_not_lock_out_who_comes_from_elsewhere(ada: User) -> None:
    fail_often()

    assert attempt(Client(), "right", address=ELSEWHERE).status_code == 302


def test_a_stranger_behind_the_same_address_does_not_lock_out_a_browser_that_has_logged_in_before(ada: User) -> None:
    mine = Client()
    attempt(mine, "right")
    mine.post("/admin/logout/")
    fail_often()

    assert attempt(Client(), "right").status_code == 429
    assert attempt(mine, "right").status_code == 302


def test_the_cookie_of_one_user_is_no_way_to_guess_the_password_of_another(ada: User) -> None:
    User.objects.create_user("eve", password="evil", is_staff=True)
    hers = Client()
    attempt(hers, "evil", username="eve")
    hers.post("/admin/logout/")

    for _ in range(LIMIT):
        attempt(hers, "wrong")

    assert attempt(hers, "right").status_code == 429


def test_the_right_password_forgets_the_failures_before_it(ada: User) -> None:
    fail_often(LIMIT - 1)

    assert attempt(Client(), "right").status_code == 302
    fail_often(LIMIT - 1)


def test_failures_are_forgotten_with_time(ada: User) -> None:
    fail_often()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE config_loginfailure SET since = since - interval '11 minutes'")

    assert attempt(Client(), "right").status_code == 302


def test_an_address_that_tries_one_name_after_another_is_refused(ada: User) -> None:
    for number in range(LIMIT_OF_ORIGIN):
        assert attempt(Client(), "wrong", username=f"user-{number}").status_code == 200

    assert attempt(Client(), "right").status_code == 429


def test_the_network_of_an_ipv6_address_counts(ada: User) -> None:
    for number in range(LIMIT):
        attempt(Client(), "wrong", address=f"2001:db8::{number + 1}")

    assert attempt(Client(), "right", address="2001:db8::ffff").status_code == 429
    assert attempt(Client(), "right", address="2001:db8:0:1::1").status_code == 302


def test_behind_a_proxy_only_the_entry_it_adds_counts(ada: User, settings: Any) -> None:
    settings.WAKEFUL_PROXIES = 1
    for number in range(LIMIT):
        passed = {"X-Forwarded-For": f"192.0.2.{number}, {HERE}"}  # the first is the client's own invention
        attempt(Client(), "wrong", address="127.0.0.1", **passed)

    refused = attempt(Client(), "right", address="127.0.0.1", **{"X-Forwarded-For": HERE})
    other = attempt(Client(), "right", address="127.0.0.1", **{"X-Forwarded-For": ELSEWHERE})

    assert (refused.status_code, other.status_code) == (429, 302)


def test_without_a_proxy_x_forwarded_for_is_ignored(ada: User, settings: Any) -> None:
    settings.WAKEFUL_PROXIES = 0
    for number in range(LIMIT):
        attempt(Client(), "wrong", **{"X-Forwarded-For": f"192.0.2.{number}"})

    assert attempt(Client(), "right", **{"X-Forwarded-For": ELSEWHERE}).status_code == 429


def test_logins_and_failures_are_on_record_with_the_address(ada: User, caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    fail_often(LIMIT)
    attempt(client, "right", address=ELSEWHERE)
    client.post("/admin/logout/", REMOTE_ADDR=ELSEWHERE)

    entries = AuditEntry.objects.order_by("id").values_list("by", "action", "object_id", "address")
    assert list(entries) == [
        ("anonymous", "login failed", str(ada.pk), HERE),
        ("anonymous", "login failed", str(ada.pk), HERE),
        ("admin:ada", "login", str(ada.pk), ELSEWHERE),
        ("admin:ada", "logout", str(ada.pk), ELSEWHERE),
    ]
    assert sum("login.failed" in record.getMessage() for record in caplog.records) == LIMIT


def test_the_typed_user_name_is_not_stored(caplog: pytest.LogCaptureFixture) -> None:
    attempt(Client(), "wrong", username="my-password-by-mistake")

    kept = [*AuditEntry.objects.values_list("detail", flat=True), *LoginFailure.objects.values_list("name", flat=True)]
    assert "my-password-by-mistake" not in str(kept) + caplog.text


def test_a_user_name_that_no_user_can_have_reaches_neither_the_database_nor_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with CaptureQueriesContext(connection) as captured:
        answer = attempt(Client(), "wrong", username="x" * 151)

    assert answer.status_code == 200
    assert "at most 150 characters" in answer.content.decode()
    assert "x" * 20 not in str(captured.captured_queries) + caplog.text
    assert not LoginFailure.objects.exists()


def test_the_actions_of_a_session_name_the_address_they_came_from(ada: User) -> None:
    client = Client()
    client.force_login(ada)

    client.post("/admin/runs/queue/default/pause/", {"reason": "x"}, REMOTE_ADDR=ELSEWHERE)

    assert AuditEntry.objects.get(action="pause").address == ELSEWHERE


def test_a_flood_of_logins_gets_retry_after_and_does_not_block_a_known_browser(
    ada: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PASSWORD_HASHERS = ["config.web.passwords.BoundedHasher"]
    ada.set_password("right")
    ada.save()
    mine = Client()
    attempt(mine, "right")
    mine.post("/admin/logout/")
    go_on, begun = Event(), []
    original = PBKDF2PasswordHasher.encode

    def slowly(self: Any, password: str, *args: Any) -> str:
        if password == "flood":  # noqa: S105
            begun.append(1)
            go_on.wait(60)
        return str(original(self, password, *args))

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", slowly)
    flood = [Thread(target=BoundedHasher().encode, args=("flood", "salt", 1)) for _ in range(3)]
    for thread in flood:
        thread.start()
    while STRANGERS.admitted._value:
        pass  # until all three are admitted

    stranger, known = attempt(Client(), "right"), attempt(mine, "right")
    with pytest.raises(Busy):
        BoundedHasher().encode("x", "salt", 1)
    at_once = len(begun)
    go_on.set()
    for thread in flood:
        thread.join()

    assert (stranger.status_code, known.status_code) == (429, 302)
    assert at_once == 1
    assert len(begun) == 3


def test_the_lane_of_a_known_browser_ends_with_its_request(ada: User) -> None:
    mine = Client()
    attempt(mine, "right")
    attempt(mine, "right")

    assert LANE.get() is STRANGERS
