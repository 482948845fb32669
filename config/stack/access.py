"""Access to a new installation: the user `admin`, and the API token WAKEFUL_API_TOKEN."""

from django.conf import settings
from django.contrib.auth.models import User

from config.stack import home
from runs.management.operator import operator
from runs.models.audit import record
from triggers.api.tokens import ALL, ensure_token

OPERATOR = "operator"


def ensure_operator_token() -> None:
    """Create the token WAKEFUL_API_TOKEN with all permissions."""
    if settings.WAKEFUL_API_TOKEN:
        ensure_token(OPERATOR, settings.WAKEFUL_API_TOKEN, [ALL], by=operator())


def ensure_admin() -> str:
    """Ensure that the user `admin` exists. Returns its password if it was generated and set just now, else where to find it: the
    output of a command may be kept in a log that others read."""
    password = settings.WAKEFUL_ADMIN_PASSWORD
    admin, is_new = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
    if is_new:
        record(operator(), "create", admin, name="admin", superuser=True)
    if not admin.has_usable_password() or not admin.password:
        admin.set_password(password)
        admin.save()
        return _place() if home.given("WAKEFUL_ADMIN_PASSWORD") else password
    if admin.check_password(password):
        return _place()
    if home.given("WAKEFUL_ADMIN_PASSWORD"):
        # An explicit password is set; a generated one must not undo a change made in the console.
        admin.set_password(password)
        admin.save()
        record(operator(), "change", admin, name="admin", changed=["password"])
        return _place()
    return "(the one you set)"


def _place() -> str:
    named = "" if home.given("WAKEFUL_ADMIN_PASSWORD") else f" in {settings.WAKEFUL_HOME / 'env'}"
    return f"(WAKEFUL_ADMIN_PASSWORD{named})"
