"""The groups of `0001_roles` see subscriptions and what became of each event there; operators send events again. Editing a
subscription decides where data goes, so no group does."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

SEEN = ("view_subscription", "view_eventdelivery")
GRANTED = {"viewer": SEEN, "operator": (*SEEN, "redeliver_subscription"), "approver": SEEN}


def grant(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("triggers"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database).filter(content_type__app_label="triggers")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=GRANTED):
        group.permissions.add(*known.filter(codename__in=GRANTED[group.name]))


class Migration(migrations.Migration):
    dependencies = [("config", "0008_prompt_agent_roles"), ("triggers", "0006_subscriptions")]
    operations = [migrations.RunPython(grant, migrations.RunPython.noop)]
