"""The route table by itself: every endpoint has a role, every unsafe one needs a person, the contract is all there."""

import pytest
from fastapi import FastAPI

from outbox.web import application
from outbox.web.auth import Role
from outbox.web.routing import Endpoint, GuardedRoute

UNSAFE = [door for door in (*application.PAGES, *application.API) if door.method != "GET"]
# Whoever logs in is not yet known, and whoever logs out may be anyone.
BEFORE_LOGIN = {"/ops/queue/login", "/ops/queue/logout"}
READS = {"/ops/queue/audit/export"}  # changes nothing but the audit, which says who has read it
CONTRACT = {
    ("GET", "/ops"), ("GET", "/events"), ("GET", "/events/{id}"), ("GET", "/entities/{entity_type}/{entity_id}"),
    ("POST", "/events"), ("POST", "/events/{id}/replay"), ("POST", "/events/{id}/discard"), ("GET", "/failed"),
    ("GET", "/failed/groups"), ("GET", "/failed/preview"), ("POST", "/failed/replay"), ("POST", "/failed/flush"),
    ("GET", "/replays"), ("GET", "/replays/{id}"), ("POST", "/replays/{id}/cancel"), ("POST", "/pause"),
    ("POST", "/resume"), ("GET", "/stats"), ("GET", "/audit"), ("GET", "/audit/export"), ("POST", "/audit/prune"),
    ("GET", "/webhooks/deliveries"), ("POST", "/webhooks/deliveries/{id}/redeliver"),
}  # fmt: skip


def test_the_api_has_exactly_the_endpoints_of_the_contract() -> None:
    assert {(door.method, door.path) for door in application.API} == CONTRACT


@pytest.mark.parametrize("door", UNSAFE, ids=lambda door: f"{door.method} {door.path}")
def test_every_unsafe_endpoint_needs_an_operator_or_more(door: Endpoint) -> None:
    if door.path in BEFORE_LOGIN:
        assert door.role is Role.ANYONE
    elif door.path in READS:
        assert door.role is Role.VIEWER
    else:
        assert door.role.allows(Role.OPERATOR)


def test_a_route_without_a_role_does_not_come_into_being() -> None:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    with pytest.raises(TypeError, match="about"):
        app.router.add_api_route("/x", lambda: None, route_class_override=GuardedRoute)
    assert not app.routes


def test_only_endpoints_that_show_nothing_are_open_to_anyone() -> None:
    open_ones = {door.path for door in (*application.PAGES, *application.API) if door.role is Role.ANYONE}
    assert open_ones == {"/", "/healthz", "/metrics", *BEFORE_LOGIN}
