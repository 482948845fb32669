import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0007_waits_for_sessions"),
        ("triggers", "0009_field_index"),
    ]

    operations = [
        migrations.CreateModel(
            name="Reading",
            fields=[
                (
                    "source",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="reading",
                        serialize=False,
                        to="triggers.source",
                    ),
                ),
                ("epoch", models.PositiveBigIntegerField(db_default=0)),
                ("taken_at", models.DateTimeField(help_text="when the owner took it", null=True)),
                ("freed_at", models.DateTimeField(help_text="when its last owner gave it back", null=True)),
                (
                    "position",
                    models.JSONField(help_text="null: the broker keeps it, or nothing was read yet", null=True),
                ),
                ("read_at", models.DateTimeField(help_text="when the last messages were recorded", null=True)),
                (
                    "read_count",
                    models.PositiveBigIntegerField(db_default=0, help_text="messages recorded, duplicates included"),
                ),
                (
                    "lag",
                    models.PositiveBigIntegerField(
                        help_text="messages that wait at the source, as last known", null=True
                    ),
                ),
                (
                    "held_since",
                    models.DateTimeField(
                        help_text="nothing is read: too many events wait for dispatch", null=True
                    ),
                ),
                ("failing_since", models.DateTimeField(null=True)),
                ("failures", models.PositiveIntegerField(db_default=0, help_text="in a row")),
                ("error", models.TextField(db_default="", default="")),
                ("remedy", models.TextField(db_default="", default="")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "owner",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="runs.worker",
                    ),
                ),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            name="PoisonMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("origin", models.TextField()),
                ("message_id", models.TextField()),
                ("reason", models.TextField()),
                ("body", models.BinaryField(help_text="as received, or its beginning")),
                ("size", models.PositiveBigIntegerField(help_text="bytes of the whole body")),
                ("headers", models.JSONField(default=dict)),
                ("count", models.PositiveBigIntegerField(db_default=1, help_text="how often it was read")),
                ("first_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("last_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="poison",
                        to="triggers.source",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["source", "-last_at"], name="poison_message_by_source"),
                    models.Index(fields=["last_at"], name="poison_message_by_age"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("source", "origin", "message_id"), name="poison_message_once"
                    )
                ],
            },
        ),
    ]
