from django.db.models import BigIntegerField, DateTimeField, Func, Value


def next_value(sequence: str) -> Func:
    """The next value of a PostgreSQL sequence, in order of arrival, with gaps."""
    return Func(Value(sequence), function="nextval", output_field=BigIntegerField())


def time_of_row() -> Func:
    """When the row is made. `Now()` is when the client's statement began, which may be hours before."""
    return Func(function="clock_timestamp", output_field=DateTimeField())
