"""`tocsin pause` and `tocsin resume`: the same as the API does, on a running Tocsin."""

import json

import pytest

from tests.cli import inside
from tests.cli.conftest import Live


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
    assert json.loads(freed.out) == json.loads(freed.out) | running


async def test_what_there_is_not_is_refused_with_one_line(live: Live) -> None:
    for thing in ("job", "subscriber"):
        refused = await inside.call("pause", thing, "nobody", env=live.env)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
