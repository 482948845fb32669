"""The identity of a claim, which no failover repeats, and whether a run has a journal."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0003_wait_looks'),
    ]

    operations = [
        migrations.AddField(
            model_name='run',
            name='claim',
            field=models.UUIDField(editable=False, help_text='identity of the last claim', null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='has_journal',
            field=models.BooleanField(db_default=False, help_text='a durable execution wrote a step, value or wait'),
        ),
        migrations.AddField(
            model_name='step',
            name='claim',
            field=models.UUIDField(editable=False, help_text='identity of that claim', null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='durable_agents',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], help_text='those of them whose code is durable', size=None),
        ),
    ]
