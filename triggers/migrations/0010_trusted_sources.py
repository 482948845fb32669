"""Whether strangers write the data of a source. Nothing is said of those that are there: an operator trusts them one by one; but
the data of metrics are numbers."""

from django.db import migrations, models

METRICS = ["drift", "json_number", "own_figures", "prometheus", "pushed", "sql_query"]


def trust_numbers(apps, schema_editor):
    apps.get_model("triggers", "Source").objects.filter(kind__in=METRICS).update(trusted=True)


class Migration(migrations.Migration):
    dependencies = [("triggers", "0009_events_in_one_order")]

    operations = [
        migrations.AddField(
            model_name="source",
            name="trusted",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="no stranger writes its data; else runs it wakes are tainted by a model",
            ),
        ),
        migrations.RunPython(trust_numbers, migrations.RunPython.noop),
    ]
