"""Requests to models that runs leave to a caller, so that a run that waits for a model occupies no process.

A run leaves a request only while other runs are ready and a caller is alive. It waits (`Wait.Kind.MODEL`), with the request in a row
beside its wait. A caller takes the row, makes the request, and commits the answer as the step of the run's journal, together with the
end of the wait; the run goes on by a replay. Where a caller cannot make it, the wait ends without an answer, and the run makes the
request itself. Where no caller takes it, the wait expires, and the run leaves it once more or makes it.

`rows`: the statements. `caller`: the loop of `manage.py caller`. `payer`: budgets. `nudge`: NOTIFY.
"""
