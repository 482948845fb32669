"""Where fewer than one page in fifty has a dead row, VACUUM leaves the entries of the indexes, and in a large table that is often so:
those of claimed runs and of waits that are over stand in front of the others, where each claim steps over them."""

from django.db import migrations

TABLES = ("runs_run", "runs_wait")


class Migration(migrations.Migration):
    dependencies = [("runs", "0023_connections_of_users")]

    operations = [
        migrations.RunSQL(
            f"ALTER TABLE {table} SET (vacuum_index_cleanup = on)",
            f"ALTER TABLE {table} RESET (vacuum_index_cleanup)",
        )
        for table in TABLES
    ]
