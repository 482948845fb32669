class Archive:
    def db_for_read(self, model, **hints):
        return "archive" if model._meta.app_label == "archive" else None

    db_for_write = db_for_read

    def allow_migrate(self, db, app_label, **hints):
        if app_label == "archive" or db == "archive":
            return app_label == db == "archive"
        return None
