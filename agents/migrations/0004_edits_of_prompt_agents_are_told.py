"""Workers that rest hear of prompt agents that came, changed or went."""

from django.db import migrations

NOTIFY = """
CREATE FUNCTION agents_prompt_agents_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('wakeful_agents', '');
  RETURN NULL;
END $$;
CREATE TRIGGER agents_prompt_agents_changed AFTER INSERT OR UPDATE OR DELETE ON agents_promptagent
FOR EACH STATEMENT EXECUTE FUNCTION agents_prompt_agents_changed();
"""
SILENCE = """
DROP TRIGGER agents_prompt_agents_changed ON agents_promptagent;
DROP FUNCTION agents_prompt_agents_changed();
"""


class Migration(migrations.Migration):
    dependencies = [("agents", "0003_help_texts")]

    operations = [migrations.RunSQL(NOTIFY, SILENCE)]
