import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

IMMUTABLE = """
CREATE FUNCTION agents_refuse_version_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'version % of a prompt agent is immutable: runs that began with it end with it', OLD.id
    USING ERRCODE = 'check_violation', CONSTRAINT = 'prompt_agent_version_immutable';
END $$;
CREATE TRIGGER prompt_agent_version_immutable BEFORE UPDATE ON agents_promptagentversion
  FOR EACH ROW EXECUTE FUNCTION agents_refuse_version_change();
"""
DROP_IMMUTABLE = """
DROP TRIGGER prompt_agent_version_immutable ON agents_promptagentversion;
DROP FUNCTION agents_refuse_version_change();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0003_sessions_and_memory'),
    ]

    operations = [
        migrations.CreateModel(
            name='PromptAgent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField(unique=True)),
                ('newest', models.PositiveIntegerField(default=1, help_text='number of its newest version, with which runs begin; edits compare it')),
                ('deleted_at', models.DateTimeField(help_text='since then no run of it starts or goes on', null=True)),
                ('deleted_by', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'permissions': [('try_promptagent', 'Can try prompt agents')],
                'default_permissions': ('view', 'change'),
                'constraints': [models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9][-a-z0-9_]{0,99}$')), name='prompt_agent_name')],
            },
        ),
        migrations.CreateModel(
            name='PromptAgentVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('fingerprint', models.TextField(help_text='of the definition; the version that runs record')),
                ('definition', models.JSONField(help_text='see agents.prompt_agents.definition')),
                ('by', models.TextField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='versions', to='agents.promptagent')),
            ],
            options={
                'ordering': ['-number'],
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('agent', 'number'), name='prompt_agent_version_once')],
            },
        ),
        migrations.RunSQL(IMMUTABLE, DROP_IMMUTABLE),
    ]
