from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("triggers", "0004_refused_deliveries")]

    operations = [
        migrations.AddIndex(
            model_name="redispatch",
            index=models.Index(
                condition=models.Q(("dispatched_at", None)), fields=["trigger", "seq"], name="redispatch_in_turn"
            ),
        ),
    ]
