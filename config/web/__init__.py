"""The web process, from the socket to Django: `application` reads bodies and bounds the work; `headers`, `sessions`, `logins`, `passwords`,
`clients`, `uploads`, `error_pages` and `refusals` are what holds on every page; `migrated` refuses work before `migrate`.
"""
