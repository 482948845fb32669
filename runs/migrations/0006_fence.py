from django.db import migrations

# The end of a run and what follows it are sent together. An error is what makes the server skip the rest.
FENCE = """
CREATE FUNCTION runs_fenced() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the claim no longer owns its run' USING ERRCODE = 'WF001';
END $$;
"""
NO_FENCE = "DROP FUNCTION runs_fenced();"


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0005_help_texts'),
    ]

    operations = [
        migrations.RunSQL(FENCE, NO_FENCE),
    ]
