"""Two pages: the last quotes, and the probes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from django.http import HttpResponse, JsonResponse
from django.urls import path

from shop.jobs import jobs
from shop.models import Quote
from singletonjob.probes import answer

if TYPE_CHECKING:
    from django.http import HttpRequest

__all__ = ["urlpatterns"]


def index(_request: HttpRequest) -> HttpResponse:
    """The newest quotes, which process answers, and whether it is the one that makes them."""
    quotes = list(Quote.objects.order_by("-at").values("at", "price", "token")[:5])
    return JsonResponse({"pid": os.getpid(), "leads": jobs.is_leader("quote"), "quotes": quotes})


def health(request: HttpRequest, probe: str) -> HttpResponse:
    """/health/livez, /health/readyz, /health/healthz, of the worker that answers."""
    found = answer(jobs, request.method or "GET", f"/{probe}")
    return HttpResponse(found.body, status=found.status, content_type=found.content_type)


urlpatterns = [path("", index), path("health/<str:probe>", health)]
