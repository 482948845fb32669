from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from .source import Source


class MetricSeries(models.Model):
    """A series of numbers of a metric source. Its name is empty if the source has one only."""

    source = models.ForeignKey(Source, models.CASCADE, related_name="series", db_index=False)
    name = models.TextField(blank=True)
    last_at = models.DateTimeField(null=True)
    last_value = models.FloatField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        verbose_name_plural = "metric series"
        constraints = [models.UniqueConstraint(fields=["source", "name"], name="metric_series_once")]

    def __str__(self) -> str:
        return f"series {self.name!r} of {self.source_id}"


class MetricSample(models.Model):
    """A number at a time, in whole seconds. Older samples are thinned, then deleted."""

    series = models.ForeignKey(MetricSeries, models.CASCADE, related_name="samples", db_index=False)
    at = models.DateTimeField()
    value = models.FloatField()

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["series", "at"], name="metric_sample_once")]
        indexes = [models.Index(fields=["at"], name="metric_sample_by_age")]

    def __str__(self) -> str:
        return f"{self.value} of series {self.series_id} at {self.at}"


class MetricDetector(models.Model):
    """A detector that is armed on all series of a source. A disarmed one is kept while its episodes are."""

    source = models.ForeignKey(Source, models.CASCADE, related_name="detectors")
    name = models.TextField(help_text="of triggers.sources.metrics.detectors")
    settings = models.JSONField(default=dict)
    armed_at = models.DateTimeField(db_default=Now())
    disarmed_at = models.DateTimeField(null=True)
    error = models.TextField(default="", db_default="", help_text="why it disarmed itself")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name} of {self.source_id}"


class DetectorState(models.Model):
    """The state that a detector has learned from a series, and the progress of its episode; written with each
    sample.
    """

    detector = models.ForeignKey(MetricDetector, models.CASCADE, related_name="states", db_index=False)
    series = models.ForeignKey(MetricSeries, models.CASCADE, related_name="states")
    state = models.JSONField(default=dict)
    seen_at = models.DateTimeField(help_text="the time of the last sample that it has seen")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["detector", "series"], name="detector_state_once")]

    def __str__(self) -> str:
        return f"state of detector {self.detector_id} for series {self.series_id}"


class MetricEpisode(models.Model):
    """A span in which a detector found a series to be out. Its id is that of its events, too."""

    id = models.UUIDField(primary_key=True)
    detector = models.ForeignKey(MetricDetector, models.CASCADE, related_name="episodes", db_index=False)
    series = models.ForeignKey(MetricSeries, models.CASCADE, related_name="episodes")
    since = models.DateTimeField(help_text="when it began, before it was held long enough to open")
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    level = models.PositiveSmallIntegerField(default=1, help_text="the worst one")
    value = models.FloatField(null=True, help_text="when it opened or last worsened; null: there was no sample")
    expected = models.FloatField(null=True)
    event_ids = models.JSONField(default=list, help_text="of its transitions, in their order")
    is_disarmed = models.BooleanField(
        default=False, db_default=False, help_text="it ended because its detector was disarmed"
    )

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["detector", "series"], name="metric_episode_one_open", condition=Q(closed_at=None)
            )
        ]
        indexes = [models.Index(fields=["closed_at"], name="metric_episode_by_age")]

    def __str__(self) -> str:
        return f"episode {self.id} of series {self.series_id}"
