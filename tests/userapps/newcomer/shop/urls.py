from django.contrib import admin
from django.urls import include, path
from orders.models import Order
from rest_framework import routers, serializers, viewsets


class OrderSerializer(serializers.ModelSerializer):
    class Meta:
        model = Order
        fields = ["id", "total", "checked"]


class OrderViewSet(viewsets.ModelViewSet):
    queryset = Order.objects.all()
    serializer_class = OrderSerializer


router = routers.DefaultRouter()
router.register("orders", OrderViewSet)
urlpatterns = [path("admin/", admin.site.urls), path("api/", include(router.urls))]
