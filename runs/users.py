"""The users of this site: Django's own model, or the one that AUTH_USER_MODEL names. Their name is its USERNAME_FIELD, such as an e-mail
address; what the model has beyond that is its own affair."""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Field, Model

FLAGS = ("is_active", "is_staff")  # columns of most user models; elsewhere properties, or the same for all


def is_djangos_own() -> bool:
    return get_user_model() is User


def user_named(name: str) -> Any | None:
    """The user of this name; also None where no user can have such a name."""
    model = get_user_model()
    if "\0" in name:
        return None
    try:
        return model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    except (ValueError, ValidationError):  # a number or an id is expected
        return None


def name_in(credentials: dict[str, Any]) -> str:
    """The name among the credentials of a login: Django's form calls it `username`, whatever the field."""
    given = credentials.get("username") or credentials.get(get_user_model().USERNAME_FIELD) or ""
    return str(given)


def may_enter(user: Any) -> bool:
    """Whether the user may log in to the console."""
    return all(getattr(user, flag, True) for flag in FLAGS)


def is_superuser(user: Any) -> bool:
    """A model without permissions of Django's has no such flag."""
    return bool(user.is_active and getattr(user, "is_superuser", False))


def of_users_who_may_enter(name: str, *, key: str = "") -> str:
    """SQL: the rows of users who may log in to the console and have this name, and this primary key if one is given; both are
    expressions. Only columns are looked at."""
    meta = get_user_model()._meta
    columns = {field.name: _quoted(str(field.column)) for field in meta.concrete_fields}
    named = columns[get_user_model().USERNAME_FIELD]
    table = ".".join(_quoted(part) for part in meta.db_table.replace('"', "").split("."))
    flags = "".join(f" AND {columns[flag]}" for flag in FLAGS if flag in columns)
    keyed = f" AND {_quoted(str(meta.pk.column))} = {key}" if key else ""
    return f"FROM {table} WHERE {named}::text = {name}{keyed}{flags}"


def pages_of(model: type[Model]) -> str:
    """How the names of the admin's pages of a model begin, such as `auth_user`."""
    return f"{model._meta.app_label}_{model._meta.model_name}"


def required_fields() -> list["Field[Any, Any]"]:
    """What a new user needs besides a name and a password."""
    model = get_user_model()
    found = [model._meta.get_field(name) for name in model.REQUIRED_FIELDS]
    return [field for field in found if isinstance(field, Field)]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'
