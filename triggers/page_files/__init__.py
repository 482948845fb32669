"""Pages as files: `pages` is a checklist or the instructions of a prompt agent as one text, `edit` keeps it in a file as well."""
