"""The commands against a running Tocsin: ring, follow, read, keys, doctor."""

import json
from pathlib import Path

import httpx
import pytest

from service.cli import reference
from service.store.vault import new_key
from tests.cli import inside
from tests.cli.conftest import API_KEY, Live, apply_schema
from tests.cli.process import ROOT, Done
from tests.receivers import Receiver, answer

HEADERS = {"authorization": f"Bearer {API_KEY}"}


async def tocsin(live: Live, *arguments: str, **env: str) -> Done:
    return await inside.call(*arguments, env={**live.env, **env})


async def register(live: Live, slug: str, url: str, **wanted: object) -> None:
    body = {"url": url, "eventTypes": ["shipment.*"], "backoffBaseSeconds": 0.05, "backoffCapSeconds": 0.1, **wanted}
    async with httpx.AsyncClient(base_url=live.url, headers=HEADERS, trust_env=False) as client:
        assert (await client.put(f"/v1/subscribers/{slug}", json=body)).status_code == 201


async def test_a_tick_is_rung_followed_read_and_recognised_when_it_comes_again(live: Live) -> None:
    await apply_schema(live.database_url)
    async with Receiver(answer(500), answer(422, body=b"no\x1b[2J thanks"), then=answer(200)) as receiver:
        await register(live, "reader", f"{receiver.url}/hooks", maxConcurrency=1)
        rung = await tocsin(live, "tick", "shipments.expire", "--run-id", "read-me", "--wait", "--json")
        assert rung.code == 0, rung.err
        run = rung.json["run"]
        assert (rung.json["duplicate"], run["settled"], run["runId"]) == (False, True, "read-me")
        assert (run["deliveries"]["delivered"], run["deliveries"]["rejected"]) == (run["events"] - 1, 1)
        assert "settled" in rung.err

        again = await tocsin(live, "tick", "shipments.expire", "--run-id", "read-me", "--cutoff", run["cutoff"])
        assert again.code == 0
        assert again.out.startswith("duplicate")
        too_old = await tocsin(live, "tick", "shipments.expire", "--cutoff", "2020-01-01T00:00:00Z")
        assert too_old.code == 1
        assert "/cutoffIso" in too_old.err

    listed = await tocsin(live, "runs", "--job", "shipments.expire", "--json")
    assert run["id"] in [each["id"] for each in listed.json]
    table = await tocsin(live, "runs", "--state", "completed", "--limit", "500")
    [line] = [line for line in table.out.splitlines() if run["id"] in line]
    assert "completed" in line
    assert "yes" in line.split()
    watched = await tocsin(live, "run", "watch", run["id"])
    assert (watched.code, watched.out.split(":")[0]) == (0, "settled")
    assert (await tocsin(live, "run", "show", run["id"], "--json")).json["id"] == run["id"]
    assert (await tocsin(live, "run", "show", "read-me", "--json")).json["id"] == run["id"]
    assert (await tocsin(live, "run", "watch", "read-me")).code == 0
    assert (await tocsin(live, "deliveries", "--run", "read-me", "--state", "rejected", "--json")).json != []

    [rejected] = (await tocsin(live, "deliveries", "--run", run["id"], "--state", "rejected", "--json")).json
    assert rejected["subscriberId"] == "reader"
    shown = await tocsin(live, "deliveries", "show", rejected["id"])
    assert "422" in shown.out
    assert "\x1b" not in shown.out
    whole = await tocsin(live, "deliveries", "show", rejected["id"], "--json")
    assert whole.json["attempts"][-1]["status"] == 422
    assert run["id"] in (await tocsin(live, "run", "show", run["id"])).out
    assert rejected["id"] in (await tocsin(live, "deliveries", "--subscriber", "reader")).out


async def test_a_refused_tick_points_to_sign_and_an_unknown_id_is_named(live: Live) -> None:
    refused = await tocsin(live, "tick", "shipments.expire", "--secret", "env:WRONG", WRONG="the secret of another")
    assert refused.code == 1
    assert "--explain" in refused.err
    for command in (("run", "show", "nothing"), ("run", "watch", "../jobs"), ("deliveries", "show", "dlv_x")):
        unknown = await tocsin(live, *command)
        assert unknown.code == 1
        assert len(unknown.err.strip().splitlines()) == 1
        assert "`tocsin " in unknown.err


async def test_a_key_is_made_shown_once_used_and_revoked(live: Live) -> None:
    made = await tocsin(live, "keys", "create", "reader", "--scope", "read")
    key = made.out.strip()
    assert made.code == 0
    assert key.startswith("tsk_")
    assert (await tocsin(live, "runs", TOCSIN_API_KEY=key)).code == 0
    assert (await tocsin(live, "keys", "create", "reader")).code == 1
    listed = await tocsin(live, "keys", "list", "--json")
    assert ("reader", "read") in [(each["name"], each["scope"]) for each in listed.json]
    assert key not in listed.out
    assert (await tocsin(live, "keys", "revoke", "reader")).code == 0
    assert (await tocsin(live, "keys", "revoke", "reader")).code == 1
    bad = await tocsin(live, "keys", "create", "Bad Name!")
    assert bad.code == 1
    assert "/name: " in bad.err


async def test_a_revoked_key_is_refused_and_the_way_to_another_is_named(live: Live) -> None:
    key = (await tocsin(live, "keys", "create", "gone")).out.strip()
    assert (await tocsin(live, "keys", "revoke", "gone")).code == 0
    refused = await tocsin(live, "runs", TOCSIN_API_KEY=key)
    assert refused.code == 1
    assert "tocsin keys create" in refused.err
    assert key not in refused.err


async def test_the_doctor_finds_a_healthy_house_and_fails_a_sick_one(live: Live) -> None:
    async with Receiver() as receiver:
        patient = {"maxAttempts": 100, "backoffCapSeconds": 86400, "deadlineSeconds": 3600, "headers": {"x-a": "b"}}
        await register(live, "sealed", f"{receiver.url}/", eventTypes=["nothing.ever"], **patient)
    healthy = await tocsin(live, "doctor", "--json")
    verdicts = {each["check"]: each["status"] for each in healthy.json}
    assert healthy.code == 0
    assert verdicts == {
        **dict.fromkeys(("settings", "jobs", "database", "clock", "schema", "ticks", "secrets", "encryption"), "ok"),
        **dict.fromkeys(("dispatch", "addresses", "leases", "api"), "ok"),
        **dict.fromkeys(("egress", "retries"), "warn"),
    }
    other_key = await tocsin(live, "doctor", TOCSIN_ENCRYPTION_KEYS=new_key())
    assert other_key.code == 1
    assert "TOCSIN_ENCRYPTION_KEYS" in other_key.out
    assert "sealed" in other_key.out
    elsewhere = await tocsin(live, "doctor", "--json", TOCSIN_EGRESS_ALLOW="")
    [addresses] = [each for each in elsewhere.json if each["check"] == "addresses"]
    assert (elsewhere.code, addresses["status"]) == (0, "warn")
    assert "TOCSIN_EGRESS_ALLOW" in addresses["detail"]
    no_secret = await tocsin(live, "doctor", "--json", SHIPMENTS_TICK_SECRET="short")
    assert [each["check"] for each in no_secret.json if each["status"] == "fail"] == ["jobs"]
    assert "this machine" in next(each["detail"] for each in healthy.json if each["check"] == "egress")
    wide = await tocsin(live, "doctor", "--json", TOCSIN_EGRESS_ALLOW="0.0.0.0/0")
    assert "wide" in next(each["detail"] for each in wide.json if each["check"] == "egress")


def test_the_doctor_creates_nothing_and_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = inside.run("doctor", "--json", "--url", "http://127.0.0.1:9")
    assert done.code == 0
    assert {each["check"]: each["status"] for each in done.json} == {
        "settings": "ok",
        "jobs": "warn",
        "egress": "ok",
        "database": "warn",
        "api": "warn",
    }
    assert list(tmp_path.iterdir()) == []


def test_the_description_of_the_api_is_printed_written_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "made" / "openapi.json"
    printed = inside.run("openapi")
    assert json.dumps(printed.json, indent=2, sort_keys=True, ensure_ascii=False) + "\n" == printed.out
    assert inside.run("openapi", "--write", str(path)).code == 0
    assert path.read_text(encoding="utf-8") == printed.out
    assert inside.run("openapi", "--check", str(path)).code == 0


def test_the_page_of_the_commands_is_what_their_help_says() -> None:
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == reference.page(), (
        "run `python -m service.cli.reference`"
    )
