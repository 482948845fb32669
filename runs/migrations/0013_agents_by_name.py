"""The pages of a stopped agent are those of all agents, and are called so. Nothing changes in the database."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_report_of_an_end")]

    operations = [
        migrations.AlterModelOptions(
            name="agentstop",
            options={
                "permissions": [("stop_agent", "Can stop and start agents")],
                "verbose_name": "agent",
                "verbose_name_plural": "agents",
            },
        ),
    ]
