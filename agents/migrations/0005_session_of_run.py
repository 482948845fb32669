from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0004_prompt_agents'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='session',
            index=models.Index(condition=models.Q(('run_id__isnull', False)), fields=['run_id'], name='session_of_run'),
        ),
    ]
