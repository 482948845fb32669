"""Recipients are silenced with a permission of its own; indexes of a recipient's page and of inboxes."""

import datetime

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0004_notifications'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='recipient',
            options={'ordering': ['name'], 'permissions': [('test_recipient', 'Can send a test to a recipient'), ('silence_recipient', 'Can silence a recipient for a time')]},
        ),
        migrations.AlterField(
            model_name='delivery',
            name='recipient',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deliveries', to='runs.recipient'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['recipient', '-id'], name='delivery_of_recipient'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('acknowledged_at', None), ('channel', 'inbox'), ('status', 'sent')), fields=['recipient', '-sent_at'], name='delivery_unread'),
        ),
        migrations.AddConstraint(
            model_name='recipient',
            constraint=models.CheckConstraint(condition=models.Q(('repeat_after__lte', datetime.timedelta(days=366)), ('second_after__lte', datetime.timedelta(days=366)), ('spacing__lte', datetime.timedelta(days=366))), name='recipient_times_within_a_year'),
        ),
    ]
