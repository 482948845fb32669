from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models


class MemberManager(BaseUserManager["Member"]):
    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "Member":
        member = self.model(email=self.normalize_email(email), is_staff=True, is_superuser=True, **fields)
        member.set_password(password)
        member.save()
        return member


class Member(AbstractBaseUser, PermissionsMixin):
    """Has an e-mail address and nothing else."""

    email = models.EmailField(unique=True, db_column="mail")
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)

    objects = MemberManager()
    USERNAME_FIELD = "email"

    class Meta:
        db_table = "people"

    def __str__(self) -> str:
        return self.email


class Guest(Member):
    """The same rows by another name."""

    class Meta:
        proxy = True

    def __str__(self) -> str:
        return self.email


class Order(models.Model):
    customer = models.ForeignKey(Member, on_delete=models.CASCADE)
    total = models.IntegerField(default=0)
    letter = models.FileField(upload_to="letters", blank=True)

    def __str__(self) -> str:
        return f"order {self.pk}"


class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    text = models.CharField(max_length=90)

    def __str__(self) -> str:
        return self.text
