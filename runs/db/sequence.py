from django.db.models import BigIntegerField, Func, Value


def next_value(sequence: str) -> Func:
    """A column default that draws from a PostgreSQL sequence: order of arrival, gaps allowed."""
    return Func(Value(sequence), function="nextval", output_field=BigIntegerField())
