"""What every operation that changes something promises: once per Idempotency-Key, with a line in the audit trail.

Operations come from the OpenAPI document; one that is not in the table below fails here until it has its request.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from service.domain.identifiers import delivery_id
from service.domain.model import Mode, Scope
from service.web.app import openapi_document
from tests.web.conftest import JOB, Api, instant

TICKS = "POST /v1/jobs/{job}/ticks"
"""Signed, and idempotent by its run id; who knocks is no operator."""
PUBLISH = "POST /v1/events"
"""There may be thousands a second: the event itself names its publisher (tests/web/test_events.py)."""

MUTATIONS = {
    f"{method.upper()} {path}"
    for path, operations in openapi_document()["paths"].items()
    for method in operations
    if method != "get"
} - {TICKS, PUBLISH}

WHY = {"reason": "because"}
SUBSCRIBER: Mapping[str, Any] = {"url": "https://billing.example/hooks", "eventTypes": ["*"]}
BODIES: dict[str, tuple[Mapping[str, Any] | None, str, str]] = {
    "POST /v1/jobs/{job}/pause": (WHY, "job.paused", f"job:{JOB}"),
    "POST /v1/jobs/{job}/resume": (WHY, "job.resumed", f"job:{JOB}"),
    "POST /v1/jobs/{job}/runs": ({"runId": "by-hand", "cutoff": instant(-60), **WHY}, "run.started", "run:"),
    "POST /v1/runs/{id}/retry": (WHY, "run.retried", "run:"),
    "PUT /v1/subscribers/{id}": ({**SUBSCRIBER, "maxAttempts": 3}, "subscriber.updated", "subscriber:acme"),
    "DELETE /v1/subscribers/{id}": (None, "subscriber.deleted", "subscriber:acme"),
    "POST /v1/subscribers/{id}/pause": (WHY, "subscriber.paused", "subscriber:acme"),
    "POST /v1/subscribers/{id}/resume": (WHY, "subscriber.resumed", "subscriber:acme"),
    "POST /v1/subscribers/{id}/rotate-secret": ({"graceSeconds": 60}, "subscriber.secret_rotated", "subscriber:acme"),
    "POST /v1/subscribers/{id}/test": (None, "subscriber.tested", "subscriber:acme"),
    "POST /v1/deliveries/{id}/replay": (WHY, "delivery.replayed", "delivery:dlv_"),
    "POST /v1/deliveries/{id}/resolve": ({"resolution": "delivered", **WHY}, "delivery.resolved", "delivery:dlv_"),
    "POST /v1/deliveries/{id}/cancel": (WHY, "delivery.cancelled", "delivery:dlv_"),
    "POST /v1/replays": ({"filter": {"subscriberId": "acme"}, **WHY}, "replay.created", "replay:"),
    "POST /v1/replays/{id}/cancel": (WHY, "replay.cancelled", "replay:"),
    "POST /v1/dispatch/pause": (WHY, "dispatch.paused", "dispatch"),
    "POST /v1/dispatch/resume": (WHY, "dispatch.resumed", "dispatch"),
}
"""The request of each operation, and the action and the object that its line has."""

BEFORE = {
    "POST /v1/jobs/{job}/resume": ("POST", f"/v1/jobs/{JOB}/pause"),
    "POST /v1/subscribers/{id}/resume": ("POST", "/v1/subscribers/acme/pause"),
    "POST /v1/dispatch/resume": ("POST", "/v1/dispatch/pause"),
}
"""What has to be done before, so that the operation changes something."""


async def _dead_letter(api: Api) -> str:
    """An exhausted delivery to `acme`; its id."""
    await api.scene.subscriber("acme", SUBSCRIBER["url"], mode=Mode.SHADOW)
    event = await api.scene.event()
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET state = 'exhausted', finished_at = now(), reason = 'attempts'"
    )
    [row] = await api.scene.execute("SELECT subscriber FROM tocsin.deliveries")
    return delivery_id(event, row.subscriber)


async def _failed_run(api: Api) -> str:
    answer = await api.client.post(f"/v1/jobs/{JOB}/runs", json={"runId": "fails", "cutoff": instant(-60), **WHY})
    await api.scene.execute("UPDATE tocsin.runs SET state = 'failed', error = 'e'")
    return str(answer.json()["run"]["id"])


async def _prepared(api: Api, operation: str) -> str:
    """A house in which the operation has something to change; its URL."""
    delivery = await _dead_letter(api)
    path = operation.split()[1].replace("{job}", JOB)
    if operation in BEFORE:
        assert (await api.client.request(*BEFORE[operation], json=WHY)).is_success
    if path == "/v1/runs/{id}/retry":
        return path.replace("{id}", await _failed_run(api))
    if path == "/v1/replays/{id}/cancel":
        started = await api.client.post("/v1/replays", json={"filter": {"subscriberId": "acme"}, **WHY})
        return path.replace("{id}", started.json()["id"])
    if operation == "POST /v1/deliveries/{id}/cancel":
        await api.scene.execute("UPDATE tocsin.deliveries SET state = 'pending', finished_at = NULL, reason = NULL")
    return path.replace("{id}", delivery if "/deliveries/" in path else "acme")


def test_every_operation_that_changes_something_is_tried_here() -> None:
    assert set(BODIES) == MUTATIONS


@pytest.mark.parametrize("operation", BODIES)
async def test_an_operation_is_done_once_under_its_key_and_leaves_one_line(api: Api, operation: str) -> None:
    body, action, thing = BODIES[operation]
    url = await _prepared(api, operation)
    headers = await api.key("ada", Scope.ADMIN) | {"idempotency-key": "once"}
    method = operation.split(maxsplit=1)[0]
    before = (await api.rows())["audit"]
    first, again = [await api.client.request(method, url, json=body, headers=headers) for _ in range(2)]
    assert first.is_success, first.text
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert (await api.rows())["audit"] == before + 1
    line = (await api.client.get("/v1/audit", params={"limit": 1})).json()["items"][0]
    assert (line["actor"], line["action"]) == ("ada", action)
    assert line["object"].startswith(thing)
    assert line["reason"] == (body or {}).get("reason")
