from typing import Any

import django.db.models.functions.datetime
from django.db import migrations, models


def add_the_shared_row(apps: Any, schema_editor: Any) -> None:
    apps.get_model("shop", "Shared").objects.create(id=1)


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("event", models.UUIDField()),
                ("agent", models.TextField()),
                ("trigger", models.TextField()),
                ("run", models.UUIDField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="FixedSwitch",
            fields=[("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))],
        ),
        migrations.CreateModel(
            name="Shared",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("touched", models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.RunPython(add_the_shared_row, migrations.RunPython.noop),
    ]
