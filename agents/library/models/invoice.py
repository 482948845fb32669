from django.db import models


class Invoice(models.Model):
    """An invoice, and how often its customer was reminded of it."""

    number = models.TextField(unique=True)
    customer = models.TextField()
    email = models.EmailField()
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    due_on = models.DateField()
    paid_on = models.DateField(null=True)
    reminders = models.PositiveIntegerField(default=0)
    reminded_on = models.DateField(null=True)

    def __str__(self) -> str:
        return self.number
