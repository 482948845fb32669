"""What a body must not do, refused with an error that says what to do instead.

`network` (an atomic body speaks to nothing outside), `atomic` (it waits for no lock), `sql_writes` (a durable body writes in steps
only), `storable` (results and effects are JSON that PostgreSQL can store).
"""
