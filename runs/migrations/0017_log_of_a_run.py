"""The lines of `run.log`, kept with their run. The database deletes them with it, also where code of before this migration deletes the run."""

import django.db.models.deletion
import django.db.models.fields.composite
from django.db import migrations, models

WITH_THE_RUN = """
ALTER TABLE runs_runlog ADD CONSTRAINT runs_runlog_of_run FOREIGN KEY (run_id) REFERENCES runs_run (id) ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0016_ends_to_count")]

    operations = [
        migrations.CreateModel(
            name="RunLog",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id", "epoch", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("epoch", models.PositiveIntegerField(help_text="the claim that wrote them")),
                ("number", models.PositiveIntegerField(help_text="lines of the claim before them")),
                ("count", models.PositiveIntegerField()),
                ("size", models.PositiveIntegerField(help_text="bytes")),
                ("dropped", models.PositiveIntegerField(help_text="lines beyond the bounds of a commit")),
                ("content", models.JSONField(help_text="of each line: time, level, text, values, traceback")),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="log",
                        to="runs.run",
                    ),
                ),
            ],
            options={"default_permissions": ()},
        ),
        migrations.RunSQL(WITH_THE_RUN, migrations.RunSQL.noop),
    ]
