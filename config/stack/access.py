"""Access to a new installation: the user `admin`, and the API token WAKEFUL_API_TOKEN."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import DatabaseError, models, transaction

from config.stack import home
from runs.management.operator import operator
from runs.models.audit import record
from runs.users import is_djangos_own, required_fields, user_named
from triggers.api.tokens import ALL, ensure_token

OPERATOR = "operator"
ADMIN = "admin"
MAIL = "admin@localhost"


def ensure_operator_token() -> None:
    """Create the token WAKEFUL_API_TOKEN with all permissions."""
    if settings.WAKEFUL_API_TOKEN:
        ensure_token(OPERATOR, settings.WAKEFUL_API_TOKEN, [ALL], by=operator())


@dataclass(frozen=True, kw_only=True)
class Login:
    """How to log in to the console, as printed."""

    name: str
    password: str


def ensure_admin() -> Login:
    """Ensure that someone can log in: the user `admin`. Its password is in the result if it was generated and set just now, else
    where to find it: the output of a command may be kept in a log that others read.

    The table of a user model of the team's own may be that of its own site. So an account is made there only while it has no
    superuser, and the password of an account that exists is not touched."""
    name = admin_name()
    admin = user_named(name)
    if admin is None and not is_djangos_own() and _has_superusers():
        return Login(name="(an account of yours)", password="(yours)")  # noqa: S106  (no password)
    if admin is None:
        admin = _create(name)
    if admin is None:
        return Login(name="(none: make one with `manage.py createsuperuser`)", password="-")  # noqa: S106
    return Login(name=name, password=_ensure_password(admin, name))


def _ensure_password(admin: Any, name: str) -> str:
    password = settings.WAKEFUL_ADMIN_PASSWORD
    if not admin.has_usable_password() or not admin.password:
        admin.set_password(password)
        admin.save()
        return _place() if home.given("WAKEFUL_ADMIN_PASSWORD") else password
    if admin.check_password(password):
        return _place()
    if home.given("WAKEFUL_ADMIN_PASSWORD") and is_djangos_own():
        # An explicit password is set; a generated one must not undo a change made in the console.
        admin.set_password(password)
        admin.save()
        record(operator(), "change", admin, name=name, changed=["password"])
        return _place()
    return "(the one you set)"


def admin_name() -> str:
    """`admin`, or an address where users are named by theirs."""
    return _name_for(get_user_model()._meta.get_field(get_user_model().USERNAME_FIELD))


def _name_for(field: Any) -> str:
    return MAIL if isinstance(field, models.EmailField) else ADMIN


def _has_superusers() -> bool:
    """Whether there is a superuser, or where the model has no such flag, any user."""
    users = get_user_model()._default_manager.all()
    has_flag = any(field.name == "is_superuser" for field in get_user_model()._meta.concrete_fields)
    return bool((users.filter(is_superuser=True) if has_flag else users).exists())


def _create(name: str) -> Any | None:
    """Make the superuser as `createsuperuser` would; None where that needs to know more."""
    users, required = get_user_model()._default_manager, required_fields()
    make = getattr(users, "create_superuser", None)
    if make is None or not all(isinstance(field, (models.CharField, models.TextField)) for field in required):
        return None
    texts = {field.name: "" if field.blank else _name_for(field) for field in required}
    try:
        with transaction.atomic():
            made = make(**texts, **{get_user_model().USERNAME_FIELD: name}, password=None)
    except (TypeError, ValueError, ValidationError, DatabaseError):
        return user_named(name)  # another process has just made it
    record(operator(), "create", made, name=name, superuser=True)
    return made


def _place() -> str:
    named = "" if home.given("WAKEFUL_ADMIN_PASSWORD") else f" in {settings.WAKEFUL_HOME / 'env'}"
    return f"(WAKEFUL_ADMIN_PASSWORD{named})"
