from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Now, Trim
from django.db.models.lookups import LessThanOrEqual


class LoginFailure(models.Model):
    """Failed logins of late, counted by name and by where they came from (config.web.logins)."""

    name = models.TextField(help_text='a keyed hash of the user name; "" counts all names tried from there')
    origin = models.TextField(help_text="a network, or a browser that has logged in before")
    failures = models.PositiveIntegerField(default=1)
    since = models.DateTimeField(db_default=Now(), help_text="when the first of them was")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["name", "origin"], name="login_failures_once")]

    def __str__(self) -> str:
        return f"{self.failures} from {self.origin}"


class Total(models.Model):
    """A counter of /metrics, or a bucket or the sum of a histogram: what has been counted so far. It only rises."""

    metric = models.TextField()
    labels = ArrayField(models.TextField(), help_text="the values of its labels, in their order")
    value = models.FloatField()
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["metric", "labels"], name="total_once")]

    def __str__(self) -> str:
        return f"{self.metric} {self.labels}"


class CountedUntil(models.Model):
    """Up to where a table has been counted into totals."""

    what = models.TextField(primary_key=True)
    place = models.TextField(help_text="the id or the time of the last row, or of where counting began")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.what}: {self.place}"


class ListPage(models.TextChoices):
    """The lists of the console whose columns may be chosen, by the names of their addresses."""

    RUNS = "runs_run"
    EVENTS = "triggers_event"


class SavedView(models.Model):
    """A list with filters and columns, under a name. It goes with the user whose view it is.

    The one at the place 0 has no name: it has the columns that the user has chosen for the list itself.
    """

    MOST = 30  # of a user and a list, with names
    LONGEST_NAME, LONGEST_QUERY = 60, 2_000  # characters

    # Processes of a project beside this one may delete users without knowing this table: a constraint of the migration `saved_views`
    # deletes its rows with them.
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_constraint=False)
    # A number of the owner and the list: the database bounds how many there are.
    place = models.PositiveSmallIntegerField()
    page = models.TextField(choices=ListPage)
    name = models.TextField()
    query = models.TextField(help_text="the filters, as the address of the list has them")
    columns = ArrayField(models.TextField(), default=list, help_text="empty: the usual ones")
    is_shared = models.BooleanField(default=False, help_text="everyone who may see the list sees the view")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        permissions = [("share_savedview", "Can share a view of a list, and remove shared ones")]
        constraints = [
            models.UniqueConstraint(fields=["owner", "page", "name"], name="saved_view_once"),
            models.UniqueConstraint(fields=["owner", "page", "place"], name="saved_view_place_once"),
            models.CheckConstraint(name="saved_view_place", condition=Q(place__lte=30)),
            models.CheckConstraint(name="saved_view_page", condition=Q(page__in=ListPage.values)),
            models.CheckConstraint(name="saved_view_columns", condition=Q(columns__len__lte=40)),
            models.CheckConstraint(
                name="saved_view_name",
                condition=Q(place=0, name="", query="", is_shared=False)
                | Q(~Q(name=""), LessThanOrEqual(Length("name"), 60), place__gt=0, name=Trim("name")),
            ),
            models.CheckConstraint(name="saved_view_query", condition=LessThanOrEqual(Length("query"), 2_000)),
        ]
        indexes = [models.Index(fields=["page", "name"], name="saved_view_shared", condition=Q(is_shared=True))]

    def __str__(self) -> str:
        return self.name or f"columns of {self.page}"
