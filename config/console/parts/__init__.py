"""Shared parts of the console's pages: panels, filters, sections, dialogs, bulk actions, previews, links, times."""
