"""`tocsin pause` and `tocsin resume`: the same as the API does, on a running Tocsin."""

import json

import pytest

from service.cli.api import Api
from service.cli.standstill import Held, Standstill
from tests.cli import inside
from tests.cli.conftest import API_KEY, Live, apply_schema
from tests.polling import eventually


@pytest.mark.parametrize(
    ("thing", "paused", "running"),
    [
        (("dispatch",), {"paused": True, "reason": "moving"}, {"paused": False, "reason": None}),
        (("job", "shipments.expire"), {"paused": True, "pausedReason": "moving"}, {"paused": False}),
        (("subscriber", "held"), {"state": "paused", "stateReason": "moving"}, {"state": "active"}),
    ],
)
async def test_each_thing_is_paused_with_a_reason_and_resumed(
    live: Live, thing: tuple[str, ...], paused: dict[str, object], running: dict[str, object]
) -> None:
    if thing[0] == "subscriber":
        body = json.dumps({"url": "http://127.0.0.1:9/hook", "eventTypes": ["nothing.ever"]}).encode()
        assert (await inside.call("subscribers", "put", thing[1], "-", env=live.env, stdin=body)).code == 0
    held = await inside.call("pause", *thing, "--reason", "moving", "--json", env=live.env)
    shown = await inside.call("pause", *thing, "--reason", "again", env=live.env)
    freed = await inside.call("resume", *thing, "--json", env=live.env)
    assert (held.code, shown.code, freed.code) == (0, 0, 0), held.err + shown.err + freed.err
    assert json.loads(held.out) == json.loads(held.out) | paused
    assert "moving" in shown.out
    assert (held.err, shown.err) == ("", "It was paused already; the first reason stays: moving\n")
    assert json.loads(freed.out) == json.loads(freed.out) | running


async def test_what_there_is_not_is_refused_with_one_line(live: Live) -> None:
    for thing in ("job", "subscriber"):
        refused = await inside.call("pause", thing, "nobody", env=live.env)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert f"there is no {thing} nobody" in refused.err


async def test_a_pause_of_all_dispatch_is_told_to_whoever_asks_and_once_to_whoever_waits(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (await inside.call("pause", "dispatch", "--reason", "moving", env=live.env)).code == 0
    asked = await inside.call("dispatch", env=live.env)
    checked = await inside.call("doctor", "--json", env=live.env)
    capsys.readouterr()
    async with Api(live.url, API_KEY) as api:
        still = Standstill(api)
        await still.look()
        still._again_at = 0.0
        await still.look()
    assert (await inside.call("resume", "dispatch", env=live.env)).code == 0
    assert "tocsin resume dispatch" in asked.out
    [found] = [each for each in checked.json if each["check"] == "dispatch"]
    assert (found["status"], "by bootstrap: moving." in found["detail"]) == ("warn", True)
    assert capsys.readouterr().err.count("all dispatch is paused since") == 1


async def test_who_follows_a_run_that_stands_still_is_told_once_what_holds_it(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Api(live.url, API_KEY) as api:
        await eventually(lambda: _none_open(api), seconds=20)  # a run of before would find what this one is to find
    await apply_schema(live.database_url)
    body = json.dumps({"url": "http://127.0.0.1:9/hook", "eventTypes": ["shipment.*"]}).encode()
    assert (await inside.call("subscribers", "put", "still", "-", env=live.env, stdin=body)).code == 0
    assert (await inside.call("pause", "subscriber", "still", "--reason", "moving", env=live.env)).code == 0
    rung = await inside.call("tick", "shipments.expire", "--run-id", "still", "--json", env=live.env)
    async with Api(live.url, API_KEY) as api:
        run = rung.json["run"]["id"]
        held = Held(api, run)

        async def completed() -> bool:
            return bool((await api.call("GET", f"/v1/runs/{run}"))["state"] == "completed")

        async def looked() -> bool:
            held._again_at = 0.0
            await held.look(await api.call("GET", f"/v1/runs/{run}"))
            return "`tocsin resume subscriber still` lets it go on" in capsys.readouterr().err

        await eventually(completed, seconds=20)
        await eventually(looked, seconds=20)  # what goes to others of this house may move for a while
        for _ in range(3):
            assert not await looked()
    assert (await inside.call("subscribers", "delete", "still", "--yes", env=live.env)).code == 0


async def _none_open(api: Api) -> bool:
    """Whether no run is to be worked on."""
    return not [run for state in ("claimed", "running") for run in await api.items("/v1/runs", 1, {"state": state})]
