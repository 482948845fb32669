from django.db import models


class ExclusionCalendar(models.Model):
    """Days on which schedules that name it do not fire, such as public holidays."""

    slug = models.SlugField(max_length=100, unique=True)
    days = models.TextField(
        blank=True,
        default="",
        help_text="one a line: 2026-12-25 Christmas · 2026-12-24..2027-01-06 Break · *-05-01 Labour Day",
    )

    def __str__(self) -> str:
        return self.slug
