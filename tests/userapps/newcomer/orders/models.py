from django.db import models


class Order(models.Model):
    total = models.IntegerField(default=0)
    checked = models.BooleanField(default=False)
    letter = models.FileField(blank=True)

    def __str__(self):
        return f"order {self.pk}"


class Line(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
    text = models.CharField(max_length=90)

    def __str__(self):
        return self.text
