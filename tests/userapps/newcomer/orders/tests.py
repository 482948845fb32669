from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import TestCase
from orders.models import Order
from rest_framework.authtoken.models import Token


class OrderTests(TestCase):
    databases = {"default", "archive"}

    def setUp(self):
        self.user = get_user_model().objects.create_superuser("ada@example.com", "secret")
        self.order = Order.objects.create(total=3)

    def test_the_api_asks_for_a_token(self):
        self.assertEqual(self.client.get("/api/orders/").status_code, 401)
        token = Token.objects.create(user=self.user)
        answer = self.client.get("/api/orders/", headers={"authorization": f"Token {token.key}"})
        self.assertEqual(answer.json(), [{"id": self.order.pk, "total": 3, "checked": False}])

    def test_the_admin_is_in_german(self):
        self.client.force_login(self.user)
        self.assertContains(self.client.get("/admin/orders/order/"), "hinzufügen")

    def test_entries_are_in_the_archive(self):
        from archive.models import Entry

        Entry.objects.create(text="old")
        self.assertEqual(Entry.objects.using("archive").count(), 1)

    def test_the_cache_is_its_own(self):
        cache.set("order", self.order.pk)
        self.assertEqual(cache.get("order"), self.order.pk)
