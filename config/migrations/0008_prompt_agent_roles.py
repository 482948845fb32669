"""The groups of `0001_roles` see prompt agents. Only administrators make and try them: they spend money and use tools."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

GROUPS = ("viewer", "operator", "approver")


def grant(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("agents"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database)
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=GROUPS):
        group.permissions.add(*known.filter(content_type__app_label="agents", codename="view_promptagent"))


class Migration(migrations.Migration):
    dependencies = [("config", "0007_session_roles"), ("agents", "0004_prompt_agents")]
    operations = [migrations.RunPython(grant, migrations.RunPython.noop)]
