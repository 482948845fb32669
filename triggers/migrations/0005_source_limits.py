import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('triggers', '0004_gate_taint'),
    ]

    operations = [
        migrations.AddField(
            model_name='source',
            name='limits',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='of a webhook: who may send, how much'),
        ),
        migrations.AlterField(
            model_name='source',
            name='kind',
            field=models.TextField(help_text='the name of a kind, or one of: api, cli, schedule, run, manual'),
        ),
        migrations.CreateModel(
            name='DeliveryRate',
            fields=[
                ('source', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='delivery_rate', serialize=False, to='triggers.source')),
                ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('count', models.PositiveIntegerField(db_default=1)),
            ],
            options={
                'default_permissions': (),
            },
        ),
    ]
