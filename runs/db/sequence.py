from django.db.models import BigIntegerField, Func, Value


def next_value(sequence: str) -> Func:
    """A column default: the next value of a PostgreSQL sequence, in order of arrival, with gaps."""
    return Func(Value(sequence), function="nextval", output_field=BigIntegerField())
