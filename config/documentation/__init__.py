"""The documentation at `/docs/`: the Markdown files of the repository, rendered when they are read. `pages` finds the files and their
order, `page` renders one, `search` finds sections, `views` serves them, `build` checks all links and writes static
pages, and `console_pages` maps pages of the console to pages of the documentation.
"""
