"""Guards that refuse what a body must not do; each error names the fix.

`network` (an atomic body speaks to nothing outside), `atomic` (it waits for no lock), `sql_writes` (a durable body writes in steps
only), `storable` (results and effects are JSON that PostgreSQL can store). And for what comes from outside: `addresses` (connections
go to public addresses only), `http` (redirects stay on http and https, answers have a size), `foreign_text` (charsets, and
characters that cannot be stored).
"""
