"""The audit trail over HTTP: who did what, before and after, without a secret; nobody can change it."""

import json

import pytest
from sqlalchemy.exc import DBAPIError

from service.domain.model import Scope
from tests.web.conftest import JOB, Api

URL = "https://hooks.example/services/T0/PATHSECRET?token=QUERYSECRET"
BODY = {
    "url": URL,
    "eventTypes": ["shipment.*"],
    "headers": {"authorization": "Bearer HEADERSECRET", "x-team": "north"},
}
PATH = "/v1/subscribers/acme"


async def test_the_trail_is_read_by_who_and_by_what_newest_first_page_by_page(api: Api) -> None:
    ada = await api.key("ada", Scope.OPERATE)
    for _ in range(2):
        await api.client.post(f"/v1/jobs/{JOB}/pause", json={"reason": "a flood"}, headers=ada)
        await api.client.post(f"/v1/jobs/{JOB}/resume")
    trail = (await api.client.get("/v1/audit", headers=ada)).json()["items"]
    assert [(line["actor"], line["action"]) for line in trail] == [
        ("bootstrap", "job.resumed"),
        ("ada", "job.paused"),
        ("bootstrap", "job.resumed"),
        ("ada", "job.paused"),
        ("test", "key.created"),
    ]
    assert set(trail[1]) == {"id", "at", "actor", "action", "object", "reason", "detail"}
    assert (trail[1]["object"], trail[1]["reason"], trail[1]["detail"]) == (f"job:{JOB}", "a flood", {"held": 0})
    first = (await api.client.get("/v1/audit", params={"actor": "ada", "limit": 1})).json()
    second = (await api.client.get("/v1/audit", params={"actor": "ada", "cursor": first["nextCursor"]})).json()
    assert first["items"] + second["items"] == [trail[1], trail[3]]
    assert second["nextCursor"] is None
    of_key = (await api.client.get("/v1/audit", params={"object": "key:ada"})).json()["items"]
    assert of_key == [trail[4]]
    both = {"object": f"job:{JOB}", "actor": "bootstrap"}
    assert (await api.client.get("/v1/audit", params=both)).json()["items"] == [trail[0], trail[2]]


async def test_an_update_tells_before_and_after_and_nothing_that_is_secret(api: Api) -> None:
    made = await api.client.put(PATH, json=BODY)
    changed = {
        **BODY,
        "url": URL + "&x=1",
        "maxAttempts": 30,
        "headers": {"authorization": "Bearer OTHERSECRET", "x-new": "1"},
    }
    assert (await api.client.put(PATH, json=changed)).status_code == 200
    assert (await api.client.put(PATH, json=changed | {"url": "http://other.example:8443/PATHSECRET"})).is_success
    await api.client.post(PATH + "/rotate-secret")
    answer = await api.client.get("/v1/audit", params={"object": "subscriber:acme"})
    rotated, moved, updated, created = answer.json()["items"]
    assert updated["action"] == "subscriber.updated"
    assert updated["detail"] == {
        "changed": ["url", "maxAttempts", "headers"],
        "before": {
            "url": "https://hooks.example:443",
            "maxAttempts": 8,
            "headers": ["authorization", "x-team"],
        },
        "after": {"url": "https://hooks.example:443", "maxAttempts": 30, "headers": ["authorization", "x-new"]},
        "pathChanged": True,
        "valuesChanged": ["authorization"],
    }
    assert moved["detail"]["after"] == {"url": "http://other.example:8443"}
    assert created["detail"]["after"]["eventTypes"] == ["shipment.*"]
    assert rotated["detail"] == {"graceSeconds": 86400.0, "olderSecrets": 1}
    trail = json.dumps((await api.client.get("/v1/audit")).json())
    assert "SECRET" not in trail
    assert made.json()["secret"].removeprefix("whsec_") not in trail


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tocsin.audit SET actor = 'nobody'",
        "DELETE FROM tocsin.audit",
        "TRUNCATE tocsin.audit",
        "UPDATE tocsin.attempts SET outcome = 'delivered'",
        "UPDATE tocsin.generations SET reason = 'another'",
        "TRUNCATE tocsin.attempts",
        "TRUNCATE tocsin.generations",
    ],
)
async def test_what_was_written_down_cannot_be_changed(api: Api, statement: str) -> None:
    await api.client.post(f"/v1/jobs/{JOB}/pause")
    with pytest.raises(DBAPIError, match="append-only"):
        await api.scene.execute(statement)
    assert len((await api.client.get("/v1/audit")).json()["items"]) == 1
