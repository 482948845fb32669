"""Watched tables: what their triggers call, and where Wakeful looks after them."""
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


# Such as those of triggers.accept: the first six bytes are the time.
UUID7 = """
CREATE FUNCTION triggers_uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$
"""
# The session of a run has its name ("wakeful:<run>:<epoch>", see runs.claim), in all threads of its body.
CAUSE = """
CREATE FUNCTION triggers_cause_of_change(
  OUT cause_root_id uuid, OUT cause_event_id uuid, OUT cause_run_id uuid, OUT cause_depth smallint, OUT cause_chain text[],
  OUT cause_is_tainted boolean
) LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF current_setting('application_name') ~ '^wakeful:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:' THEN
    SELECT root_id, event_ids[cardinality(event_ids)], id, depth + 1, chain || coalesce(nullif(trigger, ''), agent), is_tainted
    INTO cause_root_id, cause_event_id, cause_run_id, cause_depth, cause_chain, cause_is_tainted
    FROM runs_run WHERE id = split_part(current_setting('application_name'), ':', 2)::uuid;
  END IF;
END $$
"""
# A run may see untrusted data after it has written: then the events of its writes become tainted. The reverse is refused.
COLUMNS = """id, seq, source_id, ce_source, ce_id, type, "time", body_sha256, received_at, target_id, root_id, cause_event_id,
    cause_run_id, depth, chain"""
TAINT = f"""
DROP TRIGGER event_immutable ON triggers_event;
CREATE TRIGGER event_immutable BEFORE UPDATE OF {COLUMNS} ON triggers_event
  FOR EACH ROW EXECUTE FUNCTION triggers_refuse_event_change();
CREATE TRIGGER event_taint_immutable BEFORE UPDATE OF is_tainted ON triggers_event
  FOR EACH ROW WHEN (OLD.is_tainted AND NOT NEW.is_tainted) EXECUTE FUNCTION triggers_refuse_event_change();
"""
NO_TAINT = f"""
DROP TRIGGER event_taint_immutable ON triggers_event;
DROP TRIGGER event_immutable ON triggers_event;
CREATE TRIGGER event_immutable BEFORE UPDATE OF {COLUMNS}, is_tainted ON triggers_event
  FOR EACH ROW EXECUTE FUNCTION triggers_refuse_event_change();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('triggers', '0011_declared_sources'),
    ]

    operations = [
        migrations.CreateModel(
            name='WatchedTable',
            fields=[
                ('source', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='watched_table', serialize=False, to='triggers.source')),
                ('relations', models.JSONField(default=list, help_text='the tables that have them: itself, and its partitions')),
                ('kept_at', models.DateTimeField(help_text='when they were last made or found as they should be', null=True)),
                ('error', models.TextField(db_default='', default='', help_text='why they are not as they should be')),
                ('remedy', models.TextField(db_default='', default='')),
                ('failing_since', models.DateTimeField(null=True)),
                ('gap', models.TextField(db_default='', default='', help_text='which changes may be no events')),
                ('gap_at', models.DateTimeField(null=True)),
                ('sweep_wanted', models.BooleanField(db_default=False, default=False, help_text='asked for by a person')),
                ('sweep_began_at', models.DateTimeField(null=True)),
                ('position', models.JSONField(null=True)),
                ('digested', models.JSONField(default=list, help_text='the columns of the digests; with others, a sweep begins from nothing')),
                ('swept_at', models.DateTimeField(help_text='the beginning of the last sweep that came to its end', null=True)),
                ('found', models.JSONField(default=dict, help_text='what the current sweep has found: operation → number, and the first keys')),
                ('missed', models.TextField(db_default='', default='', help_text='what the last sweep has found')),
                ('missed_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='SweptRow',
            fields=[
                ('pk', models.CompositePrimaryKey('source_id', 'key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('key', models.TextField()),
                ('primary_key', models.JSONField()),
                ('digest', models.UUIDField()),
                ('passes', models.BooleanField(help_text='did it meet the condition?')),
                ('seen_at', models.DateTimeField(help_text='the beginning of the sweep that saw it last')),
                ('source', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='triggers.source')),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.RunSQL(UUID7, "DROP FUNCTION triggers_uuid7()"),
        migrations.RunSQL(CAUSE, "DROP FUNCTION triggers_cause_of_change()"),
        migrations.RunSQL(TAINT, NO_TAINT),
    ]
