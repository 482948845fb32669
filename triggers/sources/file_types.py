"""The types of events of files and objects: of what a look finds, and of what a store notifies."""

CREATED, CHANGED, RENAMED, VANISHED = "file.created", "file.changed", "file.renamed", "file.vanished"
