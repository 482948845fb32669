"""Another encryption key, without any source noticing."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection

from runs.db.encryption import decrypt
from runs.models import AuditEntry
from tests.runs.test_commands import run_command
from triggers.models import Secret, Source
from triggers.sources.kind import kinds
from triggers.sources.secrets import add_secret, keys_in_use, reencrypt
from triggers.sources.settings import InvalidSettings

pytestmark = pytest.mark.django_db

OLD, NEW, OTHER = (Fernet.generate_key().decode() for _ in range(3))


@pytest.fixture
def use_keys(settings: Any) -> Callable[..., None]:
    def use_keys(*keys: str) -> None:
        settings.WAKEFUL_ENCRYPTION_KEYS = list(keys)

    return use_keys


def make_secret(slug: str, plain: str = "a-long-and-secret-text") -> Secret:
    source = Source.objects.create(slug=slug, kind="bearer")
    return add_secret(source, plain, by="test")


def test_rotation_encrypts_every_secret_with_the_first_key_and_keeps_its_text(use_keys: Callable[..., None]) -> None:
    use_keys(OLD)
    secrets = [make_secret(f"hooks-{number}", f"a-long-and-secret-text-{number}") for number in range(3)]

    use_keys(NEW, OLD)
    assert reencrypt(by="cli:ada") == 3

    use_keys(NEW)
    for number, secret in enumerate(secrets):
        secret.refresh_from_db()
        assert decrypt(secret.ciphertext) == f"a-long-and-secret-text-{number}".encode()
    entry = AuditEntry.objects.get(action="rotate keys")
    assert (entry.by, entry.detail) == ("cli:ada", {"secrets": 3})


def test_done_twice_it_changes_nothing_more(use_keys: Callable[..., None]) -> None:
    use_keys(OLD)
    secret = make_secret("hooks")
    use_keys(NEW, OLD)
    reencrypt(by="test")
    secret.refresh_from_db()
    before = bytes(secret.ciphertext)

    assert reencrypt(by="test") == 0

    secret.refresh_from_db()
    assert bytes(secret.ciphertext) == before


def test_a_secret_that_no_key_can_read_is_named_and_left_alone(use_keys: Callable[..., None]) -> None:
    use_keys(OTHER)
    lost = make_secret("lost")
    use_keys(OLD)
    make_secret("hooks")

    use_keys(NEW, OLD)
    assert reencrypt(by="test") == 1

    assert keys_in_use().unreadable == ["lost"]
    assert bytes(Secret.objects.get(pk=lost.pk).ciphertext) == bytes(lost.ciphertext)


def test_the_command_shows_when_old_keys_may_be_dropped(use_keys: Callable[..., None]) -> None:
    use_keys(OLD)
    make_secret("hooks")
    use_keys(NEW, OLD)

    out, _, well = run_command("rotate_keys", "--check")
    assert (out, well) == ("key 2: 1 secret\n", False)

    out, _, well = run_command("rotate_keys")
    assert well
    assert out.startswith("1 encrypted again\nkey 1: 1 secret\n")
    assert "you can drop the other keys" in out

    assert run_command("rotate_keys", "--check")[2]


def test_the_command_fails_where_a_key_is_missing(use_keys: Callable[..., None]) -> None:
    use_keys(OLD)
    make_secret("hooks")
    use_keys(NEW)

    assert not run_command("rotate_keys")[2]
    use_keys()
    assert not run_command("rotate_keys", "--check")[2]


@pytest.mark.django_db(transaction=True)
def test_a_secret_changed_meanwhile_is_not_put_back(use_keys: Callable[..., None]) -> None:
    use_keys(OLD)
    secrets = [make_secret(f"hooks-{number}") for number in range(20)]
    use_keys(NEW, OLD)
    counts: list[int] = []

    def rotate() -> None:
        counts.append(reencrypt(by="test"))
        connection.close()

    both = [threading.Thread(target=rotate) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(20)

    assert sum(counts) == len(secrets)
    assert keys_in_use().only_first


@pytest.mark.parametrize("secret", ["", " ", "\t\n", "  \u00a0 "])
def test_no_kind_takes_a_secret_of_blanks(secret: str) -> None:
    taken = []
    for name, kind in kinds().items():
        try:
            kind.clean_secret(secret)
        except InvalidSettings:
            continue
        taken.append(name)
    assert taken == []
