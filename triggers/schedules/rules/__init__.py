"""When a schedule fires: pure, in its zone, from the parsed fields of its crontab and never by adding fixed offsets.

Nominal times are instants (aware UTC). Where a zone's clocks change, a local time that does not exist fires at the next
valid instant, and one that happens twice fires once, the first time. So a crontab that names every minute fires once
at the end of a skipped hour and not again in a repeated one; what must go on then belongs in UTC or in an interval.
Day of month and day of week must both match, as Celery has always had it; see `Cron.parse` for what `cron` does.

In reading order: `rule` (any of them), `crontab`, `interval`, `once`, `sun`; `rows` (as django-celery-beat stores them), `words`.
"""
