"""Undone, it removes the functions of watched tables with their triggers, which no migration makes: on the way to `migrate triggers zero`
nothing is left on the tables of others. Without it they failed each write. A later `migrate` makes those of enabled sources again."""

from django.db import migrations

DROP_CAPTURES = """
DO $$
DECLARE
  capture regprocedure;
BEGIN
  FOR capture IN SELECT oid FROM pg_proc
    WHERE starts_with(proname, 'wakeful_change_') AND pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
  LOOP
    EXECUTE 'DROP FUNCTION ' || capture || ' CASCADE';
  END LOOP;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0020_tasks_left_alone")]

    operations = [migrations.RunSQL(migrations.RunSQL.noop, DROP_CAPTURES)]
