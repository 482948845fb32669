from runs.management.json_output import JsonOutput


class BaseCommand(JsonOutput):
    """A command that checks the settings before it begins, but not the console: to load that takes most of a second."""

    requires_system_checks = ["settings"]
