"""A connection of a person goes with their user, and not to another one who gets the same name."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import migrations, models
from django.db.models import Q

# The users' own processes may delete one without knowing of these tables.
OF_USER = """
ALTER TABLE runs_connection ADD CONSTRAINT connection_of_user FOREIGN KEY (owner_user_id) REFERENCES {users} ({key})
ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
"""
OF_CONNECTION = """
ALTER TABLE runs_pendingconsent DROP CONSTRAINT {former}, ADD CONSTRAINT pending_consent_of_connection
FOREIGN KEY (connection_id) REFERENCES runs_connection (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
"""
# One whose user has been deleted keeps no user: it gives no token to the next of this name.
KNOWN = """
UPDATE runs_connection SET owner_user_id = users.{key} FROM {users} users WHERE owner <> '' AND users.{name}::text = owner
"""


def bind_to_users(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model(settings.AUTH_USER_MODEL)  # of the migrations: it does not know which field has the name
    quote = schema_editor.quote_name
    columns = {"users": quote(users._meta.db_table), "key": quote(users._meta.pk.column)}
    consents = apps.get_model("runs", "PendingConsent")
    [former] = schema_editor._constraint_names(consents, ["connection_id"], foreign_key=True)
    # In a new database, the users' own migrations may add that field later.
    if apps.get_model("runs", "Connection").objects.exclude(owner="").exists():
        named = quote(users._meta.get_field(get_user_model().USERNAME_FIELD).column)
        schema_editor.execute(KNOWN.format(name=named, **columns))
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    schema_editor.execute(OF_USER.format(**columns))
    schema_editor.execute(OF_CONNECTION.format(former=quote(former)))


class Migration(migrations.Migration):
    dependencies = [("runs", "0022_users_of_chats_may_be_deleted"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.AddField(
            "connection",
            "owner_user",
            models.ForeignKey(
                null=True,
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            "connection",
            models.CheckConstraint(
                name="connection_of_installation_has_no_user",
                condition=Q(Q(owner="", _negated=True), owner_user=None, _connector="OR"),
            ),
        ),
        migrations.RunPython(bind_to_users, migrations.RunPython.noop, elidable=False),
    ]
