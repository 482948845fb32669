"""Incidents and the runs that they cover."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

# Retention deletes an incident in one statement, and the rows of its runs go along.
CASCADE = """
ALTER TABLE runs_coveredrun ADD CONSTRAINT covered_of_incident
  FOREIGN KEY (incident_id) REFERENCES runs_incident (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
"""
NO_CASCADE = "ALTER TABLE runs_coveredrun DROP CONSTRAINT covered_of_incident"


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0005_recipients'),
    ]

    operations = [
        migrations.AlterField(
            model_name='notification',
            name='link',
            field=models.TextField(db_default='', default='', help_text='an address, or run:<id>, approval:<id>, alarm:<id>, incident:<id> for pages of this site'),
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.TextField(choices=[('trigger', 'runs of a trigger'), ('agent', 'runs of an agent, without a trigger'), ('item', 'an item of a checklist'), ('source', 'deliveries of a source')])),
                ('subject', models.TextField(help_text='the thing: slug of the trigger or source, name of the agent, id of the item')),
                ('name', models.TextField(help_text='what people call the thing')),
                ('agent', models.TextField(default='')),
                ('fingerprint', models.TextField(help_text='hash of the cause')),
                ('cause', models.TextField(help_text='the error without numbers, ids and quoted values')),
                ('error', models.TextField(default='', help_text='of the last failure')),
                ('urgency', models.TextField(choices=[('low', 'Low'), ('normal', 'Normal'), ('high', 'High')], default='normal')),
                ('count', models.PositiveIntegerField(default=0, help_text='failures in all')),
                ('in_a_row', models.PositiveIntegerField(default=0, help_text='failures since the last success of the thing')),
                ('first_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('first_run_id', models.UUIDField(null=True)),
                ('last_run_id', models.UUIDField(null=True)),
                ('opened_at', models.DateTimeField(null=True)),
                ('closed_at', models.DateTimeField(null=True)),
                ('closed_by', models.TextField(default='', help_text='empty: a success of the thing')),
                ('reopened', models.PositiveIntegerField(default=0, help_text='times that it began again soon after it was closed')),
                ('told', models.TextField(blank=True, choices=[('', 'Nothing'), ('open', 'Open'), ('closed', 'Closed')], default='', help_text='what people were told last')),
                ('told_at', models.DateTimeField(null=True)),
                ('tell_at', models.DateTimeField(help_text='when people are told next', null=True)),
            ],
            options={
                'permissions': [('close_incident', 'Can close incidents')],
                'default_permissions': ('view',),
                'indexes': [models.Index(condition=models.Q(('in_a_row__gt', 0)), fields=['kind', 'subject'], name='incident_failing'), models.Index(condition=models.Q(('closed_at__isnull', False)), fields=['kind', 'subject', 'closed_at'], name='incident_closed'), models.Index(condition=models.Q(('closed_at', None), ('opened_at__isnull', False)), fields=['-id'], name='incident_open'), models.Index(condition=models.Q(('tell_at__isnull', False)), fields=['tell_at'], name='incident_to_tell'), models.Index(condition=models.Q(('told_at__isnull', False)), fields=['told_at'], name='incident_told'), models.Index(fields=['last_at'], name='incident_last')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('closed_at', None)), fields=('kind', 'subject', 'fingerprint'), name='incident_once'), models.CheckConstraint(condition=models.Q(('kind__in', ['trigger', 'agent', 'item', 'source'])), name='incident_kind_known'), models.CheckConstraint(condition=models.Q(('urgency__in', ['low', 'normal', 'high'])), name='incident_urgency_known'), models.CheckConstraint(condition=models.Q(('told__in', ['', 'open', 'closed'])), name='incident_told_known'), models.CheckConstraint(condition=models.Q(models.Q(('closed_at', None), ('closed_by', '')), ('opened_at__isnull', False), _connector='OR'), name='incident_closed_was_open'), models.CheckConstraint(condition=models.Q(models.Q(('tell_at', None), ('told', '')), ('opened_at__isnull', False), _connector='OR'), name='incident_told_was_open'), models.CheckConstraint(condition=models.Q(models.Q(('told', ''), ('told_at', None)), ('told_at__isnull', False), _connector='OR'), name='incident_told_at_a_time'), models.CheckConstraint(condition=models.Q(('in_a_row__lte', models.F('count'))), name='incident_row_counts')],
            },
        ),
        migrations.CreateModel(
            name='CoveredRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('run_id', models.UUIDField(unique=True)),
                ('incident', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='covered', to='runs.incident')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['incident', 'id'], name='covered_by_incident')],
            },
        ),
        migrations.RunSQL(CASCADE, NO_CASCADE),
    ]
