from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("config", "0001_roles")]

    operations = [
        migrations.CreateModel(
            name="LoginFailure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.TextField(help_text='a keyed hash of the user name; "" counts all names tried from there'),
                ),
                ("origin", models.TextField(help_text="a network, or a browser that has logged in before")),
                ("failures", models.PositiveIntegerField(default=1)),
                ("since", models.DateTimeField(db_default=Now(), help_text="when the first of them was")),
            ],
            options={"default_permissions": ()},
        ),
        migrations.AddConstraint(
            model_name="loginfailure",
            constraint=models.UniqueConstraint(fields=("name", "origin"), name="login_failures_once"),
        ),
    ]
