from django.db import models
from django.db.models import Q


class ModelPrice(models.Model):
    """An operator's price of a model, in US dollars for a million tokens, where genai-prices does not know it or is
    wrong.
    """

    model = models.TextField(unique=True, help_text="name of the model, or <provider>:<model>, such as openai:gpt-5.2")
    input = models.DecimalField(max_digits=16, decimal_places=6)
    output = models.DecimalField(max_digits=16, decimal_places=6)
    cache_read = models.DecimalField(
        null=True, blank=True, help_text="empty: as input", max_digits=16, decimal_places=6
    )
    cache_write = models.DecimalField(
        null=True, blank=True, help_text="empty: as input", max_digits=16, decimal_places=6
    )

    class Meta:
        ordering = ["model"]
        constraints = [
            models.CheckConstraint(
                name="model_price_not_negative",
                condition=Q(input__gte=0, output__gte=0)
                & (Q(cache_read=None) | Q(cache_read__gte=0))
                & (Q(cache_write=None) | Q(cache_write__gte=0)),
            )
        ]

    def __str__(self) -> str:
        return self.model
