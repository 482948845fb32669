"""What the pages of the console share: panels, sections, dialogs, bulk actions, previews, links, times."""
