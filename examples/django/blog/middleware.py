"""With `?wait=2` an answer comes when the change is in the index, after two seconds at the latest."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest

from outbox.django import get_outbox, written
from outbox.errors import OutboxError

LONGEST_SECONDS = 10.0
outbox = get_outbox()


def read_your_own_write(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def handle(request: HttpRequest) -> HttpResponse:
        seconds = seconds_of(request.GET.get("wait", "0"))  # before the view: a refused request has changed nothing
        if seconds is None:
            return HttpResponseBadRequest("wait: give a number of seconds\n", content_type="text/plain")
        with written() as ids:
            response = answer(request)
        until = time.monotonic() + min(seconds, LONGEST_SECONDS)
        if seconds:
            with suppress(OutboxError):  # the change is committed, and that is the answer
                for id in ids:
                    outbox.wait(id, max(0.0, until - time.monotonic()))
        return response

    return handle


def seconds_of(text: str) -> float | None:
    with suppress(ValueError):
        if (seconds := float(text)) >= 0:  # nan is not
            return seconds
    return None
