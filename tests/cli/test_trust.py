"""`tocsin audit`, `reconcile`, `reseal` and keys that end: what operators use to find out what is, and who did it."""

import json
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from service.domain.identifiers import delivery_id
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests.cli import inside
from tests.cli.conftest import Live
from tests.receivers import Receiver, answer
from tests.scenes import Scene

FINDING = {"kind": "lane-asleep", "count": 1000, "examples": ["dlv_x"] * 4, "detail": "what\x1b", "mend": "how"}


async def test_who_did_it_is_told_newest_first(live: Live) -> None:
    for verb in ("pause", "resume"):
        assert (await inside.call(verb, "dispatch", "--reason", f"to {verb}", env=live.env)).code == 0
    told = await inside.call("audit", "--object", "dispatch", "--limit", "2", "--json", env=live.env)
    lines = [(line["actor"], line["action"], line["reason"]) for line in told.json]
    assert lines == [("bootstrap", "dispatch.resumed", "to resume"), ("bootstrap", "dispatch.paused", "to pause")]
    assert "dispatch.resumed" in (await inside.call("audit", "--actor", "bootstrap", env=live.env)).out
    assert "No lines" in (await inside.call("audit", "--actor", "nobody", env=live.env)).out
    one = delivery_id(uuid4(), 1)
    assert f"delivery:{one}" in (await inside.call("audit", "--object", one, env=live.env)).err
    assert "the kinds are" in (await inside.call("audit", "--object", "billing", env=live.env)).err


async def test_a_running_house_reconciles_to_nothing(live: Live) -> None:
    done = await inside.call("reconcile", env=live.env)
    assert (done.code, done.err) == (0, ""), done.out
    assert "the records agree" in done.out


@pytest.mark.parametrize("unchecked", [[], ["orphan"]])
async def test_findings_and_looks_that_were_cut_short_are_exit_code_1(unchecked: list[str]) -> None:
    findings = [] if unchecked else [FINDING]
    body = {"at": "2026-11-30T02:00:00Z", "findings": findings, "unchecked": unchecked}
    async with Receiver(then=answer(200, body=json.dumps(body).encode())) as api:
        shown = await inside.call("reconcile", "--url", api.url)
        told = await inside.call("reconcile", "--url", api.url, "--json")
    assert (shown.code, told.code, told.json) == (1, 1, body)
    assert "\x1b" not in shown.out
    if unchecked:
        assert "orphan" in shown.err
    else:
        assert "1,000+" in shown.out
        assert "dlv_x, dlv_x, dlv_x …" in shown.out


async def test_the_key_that_seals_is_changed_and_the_doctor_says_how_far_it_is(
    database: Database, database_url: str
) -> None:
    old, new = new_key(), new_key()
    await Scene(database, vault=Vault([old])).subscriber("acme", "http://203.0.114.7/", headers={"x-a": "1"})
    env = {"TOCSIN_DATABASE_URL": database_url, "TOCSIN_ENCRYPTION_KEYS": f"{new},{old}"}

    async def doctor(**other: str) -> tuple[str, str]:
        told = await inside.call("doctor", "--json", "--url", "http://127.0.0.1:9", env=env | other)
        [found] = [each for each in told.json if each["check"] == "encryption"]
        return found["status"], found["detail"]

    status, detail = await doctor()
    assert (status, detail.split()[0]) == ("warn", "2")
    assert "tocsin reseal" in detail
    tried = await inside.call("reseal", "--dry-run", "--json", env=env)
    assert tried.json == {"total": 2, "seen": 2, "older": 2, "unreadable": 0, "dryRun": True}
    done = await inside.call("reseal", env=env)
    assert (done.code, done.out.split()[0]) == (0, "2")
    assert (await doctor())[0] == "ok"
    lost = await inside.call("reseal", env={**env, "TOCSIN_ENCRYPTION_KEYS": old})
    assert lost.code == 1
    assert "2 can be opened with none of TOCSIN_ENCRYPTION_KEYS" in lost.err
    assert "2 cannot be opened" in lost.out
    status, detail = await doctor(TOCSIN_ENCRYPTION_KEYS=old)
    assert (status, "cannot be told while 2 sealed values" in detail) == ("warn", True)


async def test_a_key_that_ends_is_listed_with_its_end_and_its_last_use(database_url: str) -> None:
    env = {"TOCSIN_DATABASE_URL": database_url}
    made = await inside.call("keys", "create", "ci", "--expires-in", "90d", "--json", env=env)
    lives = datetime.fromisoformat(made.json["expiresAt"]) - datetime.fromisoformat(made.json["createdAt"])
    assert lives == timedelta(days=90)
    [listed] = (await inside.call("keys", "list", "--json", env=env)).json
    assert (listed["expiresAt"], listed["lastUsedAt"]) == (made.json["expiresAt"], None)
    assert "LAST USED" in (await inside.call("keys", "list", env=env)).out
    for unit in ("90", "d", "-1d", "1w"):
        refused = await inside.call("keys", "create", "other", f"--expires-in={unit}", env=env)
        assert refused.code == 2
        assert "with its unit" in refused.err.replace("\n", " ")
    too_long = await inside.call("keys", "create", "other", "--expires-in", "99999d", env=env)
    assert (too_long.code, "at most 3650 days" in too_long.err) == (1, True)
