"""The users of a project beside this one may be deleted by its own processes, which do not know these tables."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

OF_USER = """
ALTER TABLE {table} ADD CONSTRAINT {table}_of_user FOREIGN KEY (user_id) REFERENCES {users} ({key})
ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
"""


def bind_to_users(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model(settings.AUTH_USER_MODEL)._meta
    quote = schema_editor.quote_name
    for table in ("runs_chataccount", "runs_chatlinkcode"):
        schema_editor.execute(
            OF_USER.format(table=table, users=quote(users.db_table), key=quote(users.pk.column))
        )


class Migration(migrations.Migration):
    dependencies = [("runs", "0021_decisions_in_chats"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.AlterField(
            "chataccount",
            "user",
            models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            "chatlinkcode",
            "user",
            models.OneToOneField(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                primary_key=True,
                related_name="+",
                serialize=False,
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RunPython(bind_to_users, migrations.RunPython.noop),
    ]
