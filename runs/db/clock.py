from django.db.models import DateTimeField, Func


def time_of_row() -> Func:
    """A column default: when the row is made. `Now()` is when the client's statement began, which may be hours before."""
    return Func(function="clock_timestamp", output_field=DateTimeField())
