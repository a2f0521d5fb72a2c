"""With `?wait=2` an answer comes when the change is in the index, after two seconds at the latest."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from django.http import HttpRequest, HttpResponse

from outbox.django import get_outbox, written
from outbox.errors import OutboxError

LONGEST_SECONDS = 10.0
outbox = get_outbox()


def read_your_own_write(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def handle(request: HttpRequest) -> HttpResponse:
        with written() as ids:
            response = answer(request)
        if "wait" not in request.GET:
            return response
        until = time.monotonic() + min(float(request.GET.get("wait", 0)), LONGEST_SECONDS)
        with suppress(OutboxError):  # the change is committed, and that is the answer
            for id in ids:
                outbox.wait(id, max(0.0, until - time.monotonic()))
        return response

    return handle
