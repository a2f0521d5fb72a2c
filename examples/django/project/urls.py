"""The routes."""

from blog import views
from django.urls import URLPattern, path

urlpatterns: list[URLPattern] = [
    path("articles", views.articles),
    path("articles/<int:id>", views.article),
    path("articles/<int:id>/comments", views.comments),
    path("search", views.search),
]
