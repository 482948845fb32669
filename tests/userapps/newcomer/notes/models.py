from django.conf import settings
from django.db import models


class Note(models.Model):
    order = models.ForeignKey("orders.Order", models.CASCADE)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    text = models.TextField()

    def __str__(self):
        return self.text
