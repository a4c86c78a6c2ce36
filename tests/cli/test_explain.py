"""Why a subscriber got an event, or did not, by command."""

from uuid import uuid4

import httpx

from tests.cli import inside
from tests.cli.conftest import API_KEY, Live


async def test_an_event_that_did_not_come_is_explained_to_people_and_to_programs(live: Live) -> None:
    async with httpx.AsyncClient(base_url=live.url, headers={"authorization": f"Bearer {API_KEY}"}) as client:
        wanted = {"url": "http://127.0.0.1:1/hook", "eventTypes": ["order.*"]}
        await client.put("/v1/subscribers/explained", json=wanted)
        event = {"type": "parcel.lost", "subject": "p1", "version": 1, "data": {}}
        published = (await client.post("/v1/events", json=event)).json()["id"]
    told = await inside.call("explain", published, "explained", env=live.env)
    raw = await inside.call("explain", published, "explained", "--json", env=live.env)
    assert (told.code, raw.code) == (0, 0), told.err + raw.err
    assert told.out.startswith("None of its eventTypes asks for parcel.lost: add one of *, parcel.*, parcel.lost.")
    assert {"parcel.lost p1 1", "explained is active, live"} <= {
        " ".join(line.split()[1:]) for line in told.out.splitlines()
    }
    assert (raw.json["cause"], raw.json["delivery"]) == ("other-types", None)


async def test_what_nobody_knows_is_told_and_what_is_no_id_is_refused_by_the_arguments_name(live: Live) -> None:
    told = await inside.call("explain", str(uuid4()), "nobody", env=live.env)
    assert (told.code, "There is no event of this id" in told.out) == (0, True)
    refused = await inside.call("explain", "ship-1", "nobody", env=live.env)
    assert (refused.code, "EVENT: must be a UUID" in refused.err) == (1, True)


async def test_a_subject_leads_to_an_events_id_and_a_webhook_id_to_the_explanation(live: Live) -> None:
    async with httpx.AsyncClient(base_url=live.url, headers={"authorization": f"Bearer {API_KEY}"}) as client:
        event = {"type": "parcel.found", "subject": "p 2", "version": 7, "data": {}, "dueAt": "2100-01-01T00:00:00Z"}
        published = (await client.post("/v1/events", json=event)).json()["id"]
    listed = await inside.call("events", "--subject", "p 2", "--type", "parcel.found", env=live.env)
    raw = await inside.call("events", "--subject", "p 2", "--json", env=live.env)
    assert [each["id"] for each in raw.json] == [published]
    assert {published, "parcel.found", "7", "bootstrap"} <= set(listed.out.splitlines()[-1].split())
    assert "no, due at 2100-01-01T00:00:00" in listed.out
    told = await inside.call("explain", f"{published}:nobody", env=live.env)
    assert (told.code, "There is no subscriber of this id" in told.out) == (0, True)
    for arguments, fault in (((f"{published}:a", "b"), "is not the subscriber"), ((published,), "is required")):
        refused = await inside.call("explain", *arguments, env=live.env)
        assert (refused.code, f"SUBSCRIBER: {fault}" in refused.err) == (1, True), refused.err
