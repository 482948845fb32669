"""Transitions of a run to another status.

`outcome` is the value, `leave` writes it in one statement that does nothing unless its fence holds. `entries` are the journal rows
of that statement; `lock` locks a run (its key first, as everywhere); `stop` cancels runs; `spans` reports a run that ended to
OpenTelemetry; `withdraw` deletes one whose gate was quiet; `reports` are of wakes that became no run, while of a run that ends the
database leaves a message (`0012_report_of_an_end`).
"""
