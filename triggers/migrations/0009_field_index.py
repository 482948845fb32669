"""The list that the index of fields is appended to is short: the dispatcher moves it into the index when it is full, which takes
about 30 ms for 256 kB, and 250 ms for the default of 4 MB."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("triggers", "0008_archive")]

    operations = [
        migrations.RunSQL(
            "ALTER INDEX event_by_field SET (gin_pending_list_limit = 256)",
            "ALTER INDEX event_by_field SET (gin_pending_list_limit = 4096)",
        )
    ]
