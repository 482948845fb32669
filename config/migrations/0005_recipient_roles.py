"""The group operator may silence recipients. Editing them decides where links go that approve without a login, so no group does."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations


def give(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("runs"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database)
    silences = known.filter(content_type__app_label="runs", codename="silence_recipient")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name="operator"):
        group.permissions.add(*silences)


class Migration(migrations.Migration):
    dependencies = [("config", "0004_notification_roles"), ("runs", "0005_recipients")]
    operations = [migrations.RunPython(give, migrations.RunPython.noop)]
