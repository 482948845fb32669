from django.db import models


class Order(models.Model):
    """An order as a shop's webhook announced it."""

    number = models.TextField(unique=True)
    total = models.DecimalField(max_digits=12, decimal_places=2)
    placed_at = models.DateTimeField()
    shipped_at = models.DateTimeField(null=True)
    refunded = models.DecimalField(max_digits=12, decimal_places=2, null=True)

    def __str__(self) -> str:
        return self.number
