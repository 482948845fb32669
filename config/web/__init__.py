"""The web process, from the socket to Django: `application` reads bodies and limits concurrent work; `headers`, `sessions`, `logins`,
`passwords`, `clients`, `uploads`, `error_pages` and `refusals` apply to every page; `schema_check` refuses requests before `migrate`.
"""
