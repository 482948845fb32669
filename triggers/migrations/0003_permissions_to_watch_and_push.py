from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ('triggers', '0002_rules'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='source',
            options={'permissions': [('watch_table', 'Can make events of the tables of this database'), ('push_sample', 'Can push samples to sources')]},
        ),
    ]
