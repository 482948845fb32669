import redis
from celery import shared_task
from django.conf import settings


@shared_task
def charge(what):
    with redis.Redis.from_url(settings.CELERY_BROKER_URL) as client:
        client.rpush("shop:done", what)
