"""What was held, or ended in an error, is offered to the dispatcher in pieces."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('triggers', '0007_rules_version'),
    ]

    operations = [
        migrations.CreateModel(
            name='Offer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('outcome', models.TextField(help_text='of the decisions: held or error')),
                ('drop', models.BooleanField(default=False, help_text='they are dropped instead')),
                ('since', models.DateTimeField(help_text='decisions from then on; null: all', null=True)),
                ('after', models.BigIntegerField(default=0, help_text='id of the last decision that was done')),
                ('until', models.BigIntegerField(help_text='id of the last decision to do; null: until none is left', null=True)),
                ('by', models.TextField(help_text='who asked: a user, a token, a command')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('moved_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.AddField(
            model_name='trigger',
            name='resuming_at',
            field=models.DateTimeField(editable=False, help_text='since when what it held is being run', null=True),
        ),
        migrations.AlterField(
            model_name='decision',
            name='outcome',
            field=models.TextField(choices=[('overlap', 'a run of its key was live'), ('rate', 'its key has had as many runs as its rate allows'), ('joined', 'a run that had not started took it along'), ('collected', 'its window collects events for one run'), ('held', 'the trigger is paused; offered on resume'), ('resumed', 'was held or ended in an error, then ran'), ('dropped', 'was held or backfilled, then given up by a person'), ('disabled', 'it was meant for a trigger that is disabled'), ('loop', 'its causal chain is too deep, or goes round too fast'), ('error', 'matching or admitting it failed')]),
        ),
        migrations.AddField(
            model_name='offer',
            name='trigger',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='triggers.trigger'),
        ),
        migrations.AddConstraint(
            model_name='offer',
            constraint=models.UniqueConstraint(fields=('trigger', 'outcome'), name='offer_once'),
        ),
        migrations.AddConstraint(
            model_name='offer',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['held', 'error'])), name='offer_outcome_known'),
        ),
    ]
