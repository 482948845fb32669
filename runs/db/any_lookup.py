"""`field__among=values`: like `__in`, but with one array parameter for all values.

PostgreSQL takes at most 65,535 parameters in a statement, and `__in` needs one for each value.
"""

from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import models
from django.db.models.lookups import Lookup


@models.Field.register_lookup
class Among(Lookup):
    lookup_name = "among"

    def get_prep_lookup(self) -> list[Any]:
        return [self.lhs.output_field.get_prep_value(value) for value in self.rhs]

    def get_db_prep_lookup(self, value: Any, connection: Any) -> Any:
        field = self.lhs.output_field
        return "%s", [[field.get_db_prep_value(one, connection, prepared=True) for one in value]]

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        if not self.rhs:
            raise EmptyResultSet  # like `__in`: no query
        column, parameters = self.process_lhs(compiler, connection)
        array, values = self.process_rhs(compiler, connection)
        return f"{column} = ANY({array}::{self.lhs.output_field.db_type(connection)}[])", [*parameters, *values]
