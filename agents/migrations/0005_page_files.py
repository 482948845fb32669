"""Checklists and instructions of prompt agents may be kept in files too."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0004_edits_of_prompt_agents_are_told'),
    ]

    operations = [
        migrations.CreateModel(
            name='PageFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('path', models.TextField(unique=True)),
                ('digest', models.TextField(blank=True, default='', help_text='of the file when it was last taken or written; empty: not yet')),
                ('number', models.PositiveIntegerField(default=0, help_text='the revision or version that it had then')),
                ('by', models.TextField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('checklist', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='page_file', to='agents.checklist')),
                ('prompt_agent', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='page_file', to='agents.promptagent')),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('checklist', None), ('prompt_agent__isnull', False)), models.Q(('checklist__isnull', False), ('prompt_agent', None)), _connector='OR'), name='page_file_of_one')],
            },
        ),
    ]
