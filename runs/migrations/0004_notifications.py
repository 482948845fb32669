"""Recipients and deliveries of notifications. Notifications from before are not sent: they count as planned."""

import datetime
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import runs.models.delivery
from django.db import migrations, models


# Retention deletes a notification in one statement, and what became of it goes along.
CASCADE = """
ALTER TABLE runs_delivery ADD CONSTRAINT delivery_of_notification
  FOREIGN KEY (notification_id) REFERENCES runs_notification (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE runs_delivery ADD CONSTRAINT delivery_of_carrier
  FOREIGN KEY (merged_into_id) REFERENCES runs_delivery (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
"""
NO_CASCADE = """
ALTER TABLE runs_delivery DROP CONSTRAINT delivery_of_carrier;
ALTER TABLE runs_delivery DROP CONSTRAINT delivery_of_notification;
"""
# Each delivery changes a few times and then never again: without this the partial indexes fill with dead entries.
CHURNED = """
ALTER TABLE runs_delivery SET
  (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)
"""
NOT_CHURNED = """
ALTER TABLE runs_delivery RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0003_gates'),
    ]

    operations = [
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.UUIDField(default=runs.models.delivery.new_id, primary_key=True, serialize=False)),
                ('name', models.TextField(help_text='of the recipient, also if there is none of this name')),
                ('channel', models.TextField(default='')),
                ('is_urgent', models.BooleanField(default=False)),
                ('status', models.TextField(choices=[('pending', 'Pending'), ('held', 'Held'), ('sending', 'Sending'), ('sent', 'Sent'), ('failed', 'Failed'), ('unknown', 'Unknown'), ('merged', 'Merged'), ('suppressed', 'Suppressed')])),
                ('reason', models.TextField(default='', help_text='why it is held, merged, suppressed, failed or unknown')),
                ('due_at', models.DateTimeField(help_text='when it is sent next; of one being sent, when its lease ends', null=True)),
                ('give_up_at', models.DateTimeField(help_text='it fails if it could not be sent until then', null=True)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('claim', models.UUIDField(help_text='identity of the last attempt', null=True)),
                ('error', models.TextField(default='', help_text='of the last attempt')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('sent_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(help_text='when it was sent, failed, suppressed or became unknown', null=True)),
                ('acknowledged_at', models.DateTimeField(null=True)),
                ('acknowledged_by', models.TextField(default='')),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'permissions': [('resolve_delivery', 'Can say whether an unknown delivery arrived, and send a failed one again'), ('acknowledge_delivery', 'Can acknowledge a delivery')],
            },
        ),
        migrations.CreateModel(
            name='Recipient',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField(help_text='what agents call it in `to=`, such as "ops" or "ada"')),
                ('address', models.TextField(help_text='as it may be shown: without its secret parts')),
                ('ciphertext', models.BinaryField(help_text='the whole address, encrypted, if it has secret parts', null=True)),
                ('channel', models.TextField(help_text='name of the channel that sends to this address')),
                ('host', models.TextField(default='', help_text='what deliveries to this address share if it is away; empty: nothing')),
                ('is_from_settings', models.BooleanField(default=False, help_text='its address is WAKEFUL_NOTIFY_TO')),
                ('gets_all', models.BooleanField(default=True, help_text='it gets notifications that name no recipient')),
                ('zone', models.TextField(default='UTC', help_text='time zone of its hours, such as "Europe/Vienna"')),
                ('quiet_from', models.TimeField(help_text='nothing is sent from this time of day, unless it is urgent', null=True)),
                ('quiet_until', models.TimeField(null=True)),
                ('spacing', models.DurationField(default=datetime.timedelta(seconds=1800), help_text='least time between two messages, unless urgent')),
                ('digest_hour', models.PositiveSmallIntegerField(help_text='hour of the day at which everything is sent together; empty: as it comes', null=True)),
                ('least_urgency', models.TextField(choices=[('low', 'Low'), ('normal', 'Normal'), ('high', 'High')], default='low')),
                ('repeat_after', models.DurationField(default=datetime.timedelta(days=1), help_text='the same text about the same topic is sent again after this time')),
                ('second_after', models.DurationField(default=datetime.timedelta(seconds=600), help_text='time after which the second route is taken instead of more tries')),
                ('silenced_until', models.DateTimeField(null=True)),
                ('active', models.BooleanField(default=True)),
                ('failing_since', models.DateTimeField(help_text='since the first of its last deliveries that all failed', null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'ordering': ['name'],
                'permissions': [('test_recipient', 'Can send a test to a recipient')],
            },
        ),
        migrations.CreateModel(
            name='RecipientGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField()),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.AddField(
            model_name='notification',
            name='link',
            field=models.TextField(db_default='', default='', help_text='an address, or run:<id>, approval:<id>, alarm:<id> for pages of this site'),
        ),
        # The default marks the rows that are there, without rewriting them; new ones have none.
        migrations.AddField(
            model_name='notification',
            name='planned_at',
            field=models.DateTimeField(help_text='when its deliveries were written', null=True, db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AlterField(
            model_name='notification',
            name='planned_at',
            field=models.DateTimeField(help_text='when its deliveries were written', null=True),
        ),
        migrations.AddField(
            model_name='notification',
            name='to',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], default=list, help_text='names of recipients and groups; empty: those who get everything', size=None),
        ),
        migrations.AddField(
            model_name='notification',
            name='topic',
            field=models.TextField(db_default='', default='', help_text='what it is about; the same text about it is sent once'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('planned_at', None)), fields=['created_at'], name='notification_unplanned'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('topic', ''), _negated=True), fields=['topic', '-id'], name='notification_by_topic'),
        ),
        migrations.AddField(
            model_name='delivery',
            name='merged_into',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='merged', to='runs.delivery'),
        ),
        migrations.AddField(
            model_name='delivery',
            name='notification',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='runs.notification'),
        ),
        migrations.AddField(
            model_name='recipient',
            name='second',
            field=models.ForeignKey(help_text='gets what this one cannot be sent', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='first_routes', to='runs.recipient'),
        ),
        migrations.AddField(
            model_name='delivery',
            name='recipient',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deliveries', to='runs.recipient'),
        ),
        migrations.AddField(
            model_name='recipientgroup',
            name='members',
            field=models.ManyToManyField(related_name='groups', to='runs.recipient'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.UniqueConstraint(fields=('name',), name='recipient_name_once'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.UniqueConstraint(condition=models.Q(('is_from_settings', True)), fields=('is_from_settings',), name='recipient_of_settings_once'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='recipient_has_name'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('quiet_from', None), ('quiet_until', None)), models.Q(('quiet_from__isnull', False), ('quiet_until__isnull', False), models.Q(('quiet_from', models.F('quiet_until')), _negated=True)), _connector='OR'), name='recipient_quiet_hours_whole'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.CheckConstraint(condition=models.Q(('digest_hour', None), ('digest_hour__lte', 23), _connector='OR'), name='recipient_digest_hour_exists'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.CheckConstraint(condition=models.Q(('repeat_after__gte', datetime.timedelta(0)), ('second_after__gte', datetime.timedelta(0)), ('spacing__gte', datetime.timedelta(0))), name='recipient_times_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.CheckConstraint(condition=models.Q(('least_urgency__in', ['low', 'normal', 'high'])), name='recipient_urgency_known'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.CheckConstraint(condition=models.Q(('second', None), models.Q(('second', models.F('id')), _negated=True), _connector='OR'), name='recipient_not_its_second'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status__in', ['pending', 'held', 'sending'])), fields=['due_at'], name='delivery_due'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status__in', ['pending', 'held'])), fields=['-is_urgent', 'due_at'], name='delivery_order'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status__in', ['pending', 'sending'])), fields=['recipient'], name='delivery_under_way'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status', 'sent')), fields=['recipient', '-sent_at'], name='delivery_last_sent'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status', 'unknown')), fields=['ended_at'], name='delivery_unknown'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('recipient', None), ('status', 'suppressed')), fields=['created_at'], name='delivery_to_unknown_name'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('notification', 'recipient'), name='delivery_once'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(condition=models.Q(('status', 'held')), fields=('recipient',), name='delivery_one_held'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['pending', 'held', 'sending', 'sent', 'failed', 'unknown', 'merged', 'suppressed'])), name='delivery_status_known'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('due_at__isnull', False), ('status__in', ['pending', 'held', 'sending'])), models.Q(models.Q(('status__in', ['pending', 'held', 'sending']), _negated=True), ('due_at', None)), _connector='OR'), name='delivery_open_is_due'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('merged_into__isnull', False), ('status', 'merged')), models.Q(models.Q(('status', 'merged'), _negated=True), ('merged_into', None)), _connector='OR'), name='delivery_merged_into_another'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'sent'), _negated=True), ('sent_at__isnull', False), _connector='OR'), name='delivery_sent_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['held', 'suppressed']), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='delivery_not_made_has_reason'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('acknowledged_at', None), ('acknowledged_by', '')), models.Q(('acknowledged_at__isnull', False), models.Q(('acknowledged_by', ''), _negated=True)), _connector='OR'), name='delivery_acknowledged_by_someone'),
        ),
        migrations.AddConstraint(
            model_name='recipientgroup',
            constraint=models.UniqueConstraint(fields=('name',), name='recipient_group_name_once'),
        ),
        migrations.AddConstraint(
            model_name='recipientgroup',
            constraint=models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='recipient_group_has_name'),
        ),
        migrations.RunSQL(CASCADE, NO_CASCADE),
        migrations.RunSQL(CHURNED, NOT_CHURNED),
    ]
