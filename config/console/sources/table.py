"""A source that watches a table, on its page: its triggers in the database, and its sweeps."""

from config.console.parts.moments import moment
from config.console.parts.sections import Facts, Notice, Section
from config.console.sources.reading import poison_of
from triggers.models import Source, SweptRow, WatchedTable
from triggers.sources.databases.tables.keep import KIND, objects
from triggers.sources.databases.tables.watched_table import STATEMENT


def table_notice(source: Source) -> Notice:
    state = WatchedTable.objects.filter(source=source).first()
    if not source.enabled:
        return Notice(text="Disabled: changes of the table are no events.", level="warning")
    if state is None or (state.kept_at is None and not state.error):
        return Notice(
            text="Its triggers have not been created yet. Choose “Check now”, or wait some minutes.", level="warning"
        )
    if state.error:
        return Notice(
            text=f"Its triggers are not as they should be: {state.error}", level="bad", details=[state.remedy]
        )
    if said := [text for text in (state.gap, state.missed and f"The last sweep {state.missed}") if text]:
        return Notice(text="Its triggers are there, but changes were missed.", level="warning", details=said)
    each = "statement" if is_by_statement(source) else "change"
    return Notice(
        text=f"Its triggers are there: each {each} is an event, in the transaction of the change.", level="good"
    )


def is_by_statement(source: Source) -> bool:
    return source.kind == KIND and source.settings.get("each") == STATEMENT


def table_sections(source: Source) -> list[Section]:
    state = WatchedTable.objects.filter(source=source).first() or WatchedTable(source=source)
    there = objects().get(source.pk)
    remembered = SweptRow.objects.filter(source=source).count() if state.digested else 0
    sweeps = Facts(
        title="Sweeps",
        rows=[
            ("Last complete one", moment(state.swept_at)),
            ("Under way since", moment(state.sweep_began_at)),
            ("The last one", state.missed or ("found nothing" if state.swept_at else "")),
            ("Rows remembered", f"{remembered:,}" if remembered else "none"),
        ],
    )
    return [
        Facts(
            title="Triggers in the database",
            rows=[
                ("Tables", ", ".join(state.relations)),
                ("Triggers", len(there.triggers) if there else 0),
                ("Last seen in order", moment(state.kept_at)),
            ],
        ),
        *([] if is_by_statement(source) else [sweeps]),
        poison_of(source),
    ]
