import gc

# Every process begins with thousands of modules, which are no garbage: with Python's own threshold of 700 objects it would look
# through them again and again, a twentieth of the CPU of a start.
gc.set_threshold(50_000, 20, 20)

from .celery import app as celery_app  # noqa: E402  (its imports are the most of them)

__all__ = ["celery_app"]
