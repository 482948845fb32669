from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("event", models.UUIDField(null=True)),
                ("agent", models.TextField()),
                ("trigger", models.TextField()),
                ("run", models.UUIDField()),
                ("attempt", models.IntegerField()),
                ("events", models.IntegerField(default=1, help_text="how many events the run had")),
                ("key", models.TextField(default="")),
                ("number", models.IntegerField(help_text="the event's place in its sender's order", null=True)),
                ("emitted", models.IntegerField(default=0)),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Deed",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run", models.UUIDField()),
                ("step", models.TextField(help_text="its key in the journal")),
                ("approval", models.UUIDField(help_text="the approval on whose strength it was done", null=True)),
                ("arguments", models.JSONField(help_text="what was approved", null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Call",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", models.TextField()),
                ("run", models.UUIDField()),
                ("step", models.TextField(help_text="its key in the journal: the rest of the idempotency key")),
                ("said", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="Shared",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("touched", models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Note",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
            ],
        ),
    ]
