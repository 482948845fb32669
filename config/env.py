"""Typed settings from the environment, read once; invalid values raise. `NAME_FILE` names a file with the value of `NAME`."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured
from environs import EnvError, FileAwareEnv

from agents.budget import RANGE, is_amount
from agents.kernel.durations import parse_duration

T = TypeVar("T")
POSTGRESQL = ("django.db.backends.postgresql", ".postgis", ".timescale.backends.postgresql")


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A setting for operators."""

    name: str
    default: str
    meaning: str
    value: Any = field(repr=False)  # error pages print settings
    secret: bool = False


class Env:
    """The environment, with the file of `manage.py up` in WAKEFUL_HOME as a fallback."""

    def __init__(self) -> None:
        self._env = FileAwareEnv(strip_whitespace=True)
        self.knobs: list[Knob] = []

    def read_file(self, path: Path) -> None:
        """Read NAME=value lines from a file, for variables that the environment does not set."""
        try:
            self._env.read_env(path, recurse=False)
        except PermissionError:
            raise ImproperlyConfigured(
                f"{path} belongs to another user. Run as that user, or set WAKEFUL_HOME to a folder of your own."
            ) from None

    def take_keys(self) -> None:
        """Give the clients of model providers, which read OPENAI_API_KEY and the like themselves, the keys that files hold."""
        for named in [name for name in os.environ if name.endswith("_API_KEY_FILE")]:
            name = named.removesuffix("_FILE")
            with _loud(name, "must be text"):
                os.environ[name] = self._env.str(name)

    def text(
        self,
        name: str,
        default: str,
        meaning: str = "",
        *,
        shown: str = "",
        secret: bool = False,
        choices: tuple[str, ...] = (),
    ) -> str:
        """A string, one of `choices` if there are any; `shown`: the default as documented, if it is another knob's value."""
        with _loud(name, f"must be one of {', '.join(choices)}" if choices else "must be text"):
            value = self._env.str(name, default)
            if choices and value not in choices:
                raise ValueError
        return self._keep(name, shown or default, meaning, value, secret)

    def flag(self, name: str, default: bool, meaning: str = "") -> bool:
        """A boolean: true/false, yes/no, on/off, 1/0."""
        with _loud(name, "must be true or false"):
            value = self._env.bool(name, default)
        return self._keep(name, str(default).lower(), meaning, value)

    def count(
        self, name: str, default: int, meaning: str = "", *, low: int = 1, high: int | None = None, shown: str = ""
    ) -> int:
        """A whole number from `low` to `high`."""
        with _loud(
            name, f"must be a whole number {'from' if high else 'of at least'} {low}{f' to {high}' if high else ''}"
        ):
            value = self._env.int(name, default)
            if value < low or (high is not None and value > high):
                raise ValueError
        return self._keep(name, shown or str(default), meaning, value)

    def duration(self, name: str, default: str, meaning: str = "", *, may_be_zero: bool = False) -> timedelta:
        """A duration: 15ms, 2.5s, 10m, 1h, 30d."""
        above = "" if may_be_zero else " above zero"
        with _loud(name, f"must be a duration{above} with a unit, such as 15ms, 2.5s, 10m, 1h or 30d"):
            value = parse_duration(self._env.str(name, default))
            if not (value or may_be_zero):
                raise ValueError
        return self._keep(name, default, meaning, value)

    def money(self, name: str, meaning: str = "") -> Decimal | None:
        """An amount such as 5 or 0.20; empty: None."""
        with _loud(name, f"must be {RANGE}, such as 5 or 0.20"):
            text = self._env.str(name, "").strip()
            try:
                value = Decimal(text) if text else None
            except InvalidOperation:
                raise ValueError from None
            if value is not None and not is_amount(value):
                raise ValueError
        return self._keep(name, "", meaning, value)

    def hour(self, name: str, default: str, meaning: str = "") -> int | None:
        """An hour of the day, 0 to 23; empty: None."""
        with _loud(name, "must be an hour from 0 to 23, or empty"):
            text = self._env.str(name, default).strip()
            value = int(text) if text else None
            if value is not None and not 0 <= value <= 23:
                raise ValueError
        return self._keep(name, default, meaning, value)

    def zone(self, name: str, default: str, meaning: str = "") -> ZoneInfo:
        """A time zone by its IANA name."""
        with _loud(name, "must be the name of a time zone, such as Europe/Vienna"):
            try:
                value = ZoneInfo(self._env.str(name, default))
            except (ZoneInfoNotFoundError, OSError):
                raise ValueError from None
        return self._keep(name, default, meaning, value)

    def words(self, name: str, default: str, meaning: str = "", *, shown: str = "", secret: bool = False) -> list[str]:
        """A comma-separated list; empty items are dropped."""
        with _loud(name, "must be a comma-separated list"):
            value = [word.strip() for word in self._env.str(name, default).split(",") if word.strip()]
        return self._keep(name, shown or default, meaning, value, secret)

    def networks(self, name: str, default: str, meaning: str = "") -> list[str]:
        """Networks such as 10.1.0.0/16, separated by commas."""
        with _loud(name, "must be networks separated by commas, such as 10.1.0.0/16"):
            value = [str(ip_network(word)) for word in self.words(name, default)]
        return self._keep(name, default, meaning, value)

    def members(self, name: str, meaning: str = "", *, secret: bool = False) -> dict[str, Any]:
        """A JSON object; empty: one without members."""
        with _loud(name, 'must be a JSON object, such as {"name": "value"}'):
            text = self._env.str(name, "").strip()
            value = json.loads(text) if text else {}
            if not isinstance(value, dict):
                raise ValueError
        return self._keep(name, "", meaning, value, secret)

    def path(self, name: str, default: Path, meaning: str = "", *, shown: str = "") -> Path:
        """An absolute path; a relative one is taken from the current folder."""
        with _loud(name, "must be a path"):
            value = self._env.path(name, default).expanduser().absolute()
        return self._keep(name, shown or str(default), meaning, value)

    def postgres(self, name: str, default: str, meaning: str = "") -> dict[str, Any]:
        """A `postgres://user:password@host:port/name?option=value` URL as a Django database; also `postgis://`."""
        with _loud(name, "must be a PostgreSQL URL, such as postgres://user:password@host:5432/name"):
            value = dict(self._env.dj_db_url(name, default))
            if not str(value.get("ENGINE")).endswith(POSTGRESQL):
                raise ValueError
        return self._keep(name, default, meaning, value, secret=True)

    def _keep(self, name: str, default: str, meaning: str, value: T, secret: bool = False) -> T:
        if meaning:
            self.knobs.append(Knob(name=name, default=default, meaning=meaning, value=value, secret=secret))
        return value


@contextmanager
def _loud(name: str, expected: str) -> Iterator[None]:
    # The value itself is never printed: it may be a secret pasted into the wrong variable.
    try:
        yield
    except (EnvError, ValueError) as error:
        detail = str(error) if "readable file path" in str(error) else f"{name} {expected}."
        raise ImproperlyConfigured(
            f"{detail} Correct the environment variable {name}, or unset it for the default."
        ) from None
