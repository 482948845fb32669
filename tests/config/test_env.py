import os
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.env import Env


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("15ms", timedelta(milliseconds=15)),
        ("2.5s", timedelta(seconds=2.5)),
        ("10 m", timedelta(minutes=10)),
        ("1h", timedelta(hours=1)),
        ("30d", timedelta(days=30)),
    ],
)
def test_a_duration_has_a_unit(monkeypatch: pytest.MonkeyPatch, text: str, length: timedelta) -> None:
    monkeypatch.setenv("WAKEFUL_LEASE", text)

    assert Env().duration("WAKEFUL_LEASE", "8s") == length


@pytest.mark.parametrize("text", ["8", "0s", "-1s", "soon", "1h30", ""])
def test_nonsense_for_a_duration_is_refused_with_the_name_and_the_fix(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("WAKEFUL_LEASE", text)

    with pytest.raises(ImproperlyConfigured, match=r"WAKEFUL_LEASE must be a duration .* such as 15ms.* Correct"):
        Env().duration("WAKEFUL_LEASE", "8s")


@pytest.mark.parametrize("text", ["http", "0", "65536", "80.5"])
def test_a_port_is_a_whole_number_in_range(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WAKEFUL_PORT", text)

    with pytest.raises(ImproperlyConfigured, match="WAKEFUL_PORT must be a whole number from 1 to 65535"):
        Env().count("WAKEFUL_PORT", 8000, high=65535)


def test_a_database_must_be_postgresql_and_its_password_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:hunter2@host/name")

    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL must be a PostgreSQL URL") as refused:
        Env().postgres("DATABASE_URL", "postgres://app@127.0.0.1/wakeful")

    assert "hunter2" not in str(refused.value)


def test_the_key_of_a_provider_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-from-a-file\n")
    monkeypatch.setenv("OPENAI_API_KEY", "")  # put back after the test
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "key"))

    Env().take_keys()

    assert os.environ["OPENAI_API_KEY"] == "sk-from-a-file"


def test_a_key_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "none"))

    with pytest.raises(ImproperlyConfigured, match="OPENAI_API_KEY_FILE must be a readable file path"):
        Env().take_keys()


def test_a_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.delenv("SECRET_KEY")
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "secret"))

    assert Env().text("SECRET_KEY", "") == "from a file"


def test_a_missing_secret_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY_FILE", "/nowhere/secret")

    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY_FILE must be a readable file"):
        Env().text("SECRET_KEY", "")


def test_the_environment_wins_over_the_file_in_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("REDIS_URL='redis://kept/0'\nWAKEFUL_API_TOKEN='kept'\n")
    monkeypatch.setenv("REDIS_URL", "redis://said/0")
    monkeypatch.delenv("WAKEFUL_API_TOKEN")
    env = Env()
    env.read_file(tmp_path / "env")

    assert env.text("REDIS_URL", "") == "redis://said/0"
    assert env.text("WAKEFUL_API_TOKEN", "") == "kept"


def test_every_knob_is_listed_with_its_meaning() -> None:
    from django.conf import settings

    names = [knob.name for knob in settings.KNOBS]

    assert len(names) == len(set(names)) > 25
    assert {"DATABASE_URL", "WAKEFUL_HOME", "WAKEFUL_LEASE", "WAKEFUL_MAX_BACKLOG"} <= set(names)


@pytest.mark.parametrize("text", ["-1", "much", "nan", "1e12", "1e30", "1e-12"])
def test_an_amount_of_money_that_cannot_be_kept_is_refused_with_the_name_and_the_range(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("WAKEFUL_BUDGET_DAY_USD", text)

    with pytest.raises(
        ImproperlyConfigured,
        match="WAKEFUL_BUDGET_DAY_USD must be an amount from 0 to a trillion with at most 10 decimal places",
    ):
        Env().money("WAKEFUL_BUDGET_DAY_USD")


@pytest.mark.parametrize(
    ("text", "amount"), [("", None), ("0", 0), ("0.20", Decimal("0.2")), ("1e-10", Decimal("1e-10"))]
)
def test_an_amount_of_money_may_be_empty(monkeypatch: pytest.MonkeyPatch, text: str, amount: Decimal | None) -> None:
    monkeypatch.setenv("WAKEFUL_BUDGET_DAY_USD", text)

    assert Env().money("WAKEFUL_BUDGET_DAY_USD") == amount


@pytest.mark.parametrize("text", ["24", "-1", "seven"])
def test_an_hour_is_one_of_the_day_or_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WAKEFUL_DIGEST_HOUR", text)

    with pytest.raises(ImproperlyConfigured, match="WAKEFUL_DIGEST_HOUR must be an hour from 0 to 23, or empty"):
        Env().hour("WAKEFUL_DIGEST_HOUR", "7")
    monkeypatch.setenv("WAKEFUL_DIGEST_HOUR", "")
    assert Env().hour("WAKEFUL_DIGEST_HOUR", "7") is None


@pytest.mark.parametrize("text", ["Vienna", "", "../etc/passwd"])
def test_a_zone_is_an_iana_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WAKEFUL_ZONE", text)

    with pytest.raises(ImproperlyConfigured, match="WAKEFUL_ZONE must be the name of a time zone"):
        Env().zone("WAKEFUL_ZONE", "UTC")
