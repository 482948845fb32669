"""A row that cannot be written as JSON is said to the functions of watched tables, which would take it for one that has not changed."""

from importlib import import_module

from django.db import migrations

FORMER = import_module("triggers.migrations.0002_rules").ROW.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
SAID = "THEN  -- such as a cast to json of the table's own that fails: the write goes on\n"


class Migration(migrations.Migration):
    dependencies = [("triggers", "0006_light_writes_of_watched_tables")]

    operations = [
        migrations.RunSQL(
            FORMER.replace(SAID, SAID + "  PERFORM set_config('wakeful.unreadable', 'true', true);\n"),
            FORMER,
        ),
    ]
