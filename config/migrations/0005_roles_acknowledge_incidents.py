"""The group operator acknowledges and mutes incidents, as it closes them, unless people have taken that from it."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations


def let_operators_acknowledge(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("runs"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database).filter(content_type__app_label="runs")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name="operator"):
        if group.permissions.filter(content_type__app_label="runs", codename="close_incident").exists():
            group.permissions.add(*known.filter(codename__in=["acknowledge_incident", "mute_incident"]))


class Migration(migrations.Migration):
    dependencies = [("config", "0004_totals"), ("runs", "0019_acknowledge_and_mute_incidents")]
    operations = [migrations.RunPython(let_operators_acknowledge, migrations.RunPython.noop)]
