"""Periodic tasks of a project on the same database: they rest as `foreign`, and Wakeful's own have a mark that keeps the project's Beat
from them (`triggers.schedules.own_tasks`). The project's Beat reads its tasks again."""

from django.db import migrations, models

REST = ["", "off", "done", "used_up", "over", "problem"]
ALLOW = """
ALTER TABLE triggers_schedule DROP CONSTRAINT schedule_rest_known;
ALTER TABLE triggers_schedule ADD CONSTRAINT schedule_rest_known CHECK (rest IN ({known})) NOT VALID;
"""
KNOWN = ", ".join(f"'{one}'" for one in [*REST, "foreign"])
KNOWN_BEFORE = ", ".join(f"'{one}'" for one in REST)
IS_OWN = "{row}task = 'triggers.fire_schedule' OR {row}task LIKE 'wakeful.%'"
MARK = f"""
CREATE FUNCTION triggers_mark_own_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.headers := 'Fired by Wakeful''s Beat alone.';
  RETURN NEW;
END $$;
CREATE TRIGGER own_task_marked BEFORE INSERT OR UPDATE ON django_celery_beat_periodictask
  FOR EACH ROW WHEN ({IS_OWN.format(row="NEW.")}) EXECUTE FUNCTION triggers_mark_own_task();
UPDATE django_celery_beat_periodictask SET headers = headers WHERE {IS_OWN.format(row="")};
UPDATE django_celery_beat_periodictasks SET last_update = clock_timestamp();
"""
UNMARK = f"""
DROP TRIGGER IF EXISTS own_task_marked ON django_celery_beat_periodictask;
DROP FUNCTION IF EXISTS triggers_mark_own_task();
UPDATE django_celery_beat_periodictask SET headers = '{{}}' WHERE {IS_OWN.format(row="")};
UPDATE triggers_schedule SET rest = 'off' WHERE rest = 'foreign';
"""


class Migration(migrations.Migration):
    dependencies = [
        ("triggers", "0018_list_of_schedules"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.RunSQL(
            ALLOW.format(known=KNOWN),
            ALLOW.format(known=KNOWN_BEFORE),
            state_operations=[
                migrations.RemoveConstraint("schedule", "schedule_rest_known"),
                migrations.AddConstraint(
                    "schedule",
                    models.CheckConstraint(name="schedule_rest_known", condition=models.Q(rest__in=[*REST, "foreign"])),
                ),
                migrations.AlterField(
                    "schedule",
                    "rest",
                    models.TextField(
                        blank=True,
                        choices=[
                            ("off", "switched off"),
                            ("done", "it was to fire once, and has"),
                            ("used_up", "it has fired as often as it may"),
                            ("over", "its rule names no further time, or its end has come"),
                            ("problem", "its rule cannot be carried out"),
                            ("foreign", "another Beat is to fire it"),
                        ],
                        db_default="",
                        default="",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(MARK, UNMARK),
    ]
