"""The routes' views, with JSON in and out. None of them speaks of search but the search itself."""

from __future__ import annotations

import json

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from elasticsearch import Elasticsearch

from .models import Article, Comment

elastic = Elasticsearch(settings.OUTBOX["ELASTIC_URL"])


@require_POST
def articles(request: HttpRequest) -> JsonResponse:
    made = Article.objects.create(title=json.loads(request.body)["title"])
    return JsonResponse({"id": made.pk}, status=201)


@require_http_methods(["PUT", "DELETE"])
def article(request: HttpRequest, id: int) -> HttpResponse:
    found = get_object_or_404(Article, pk=id)
    if request.method == "DELETE":
        found.delete()
        return HttpResponse(status=204)
    found.title = json.loads(request.body)["title"]
    found.save()
    return JsonResponse({"id": id})


@require_POST
def comments(request: HttpRequest, id: int) -> JsonResponse:
    made = Comment.objects.create(article=get_object_or_404(Article, pk=id), text=json.loads(request.body)["text"])
    return JsonResponse({"id": made.pk}, status=201)


@require_GET
def search(request: HttpRequest) -> JsonResponse:
    query = {"multi_match": {"query": request.GET.get("q", ""), "fields": ["title", "comments"]}}
    reply = elastic.search(index=settings.OUTBOX["ELASTIC_INDEX"], query=query)
    return JsonResponse([{"id": hit["_id"], **hit["_source"]} for hit in reply["hits"]["hits"]], safe=False)
