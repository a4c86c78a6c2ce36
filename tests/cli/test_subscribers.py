"""`tocsin subscribers`: a whole life from a file, with secrets that end in files of their owner alone."""

import json
import stat
from pathlib import Path

import pytest

from service.domain.signing import decode_secret, new_secret
from tests.cli import inside
from tests.cli.conftest import Live
from tests.cli.process import Done

BODY = {"url": "http://127.0.0.1:9/hook", "eventTypes": ["nothing.ever"], "headers": {"x-key": "hidden-value"}}


async def tocsin(live: Live, *arguments: str, stdin: object = None, **env: str) -> Done:
    body = b"" if stdin is None else json.dumps(stdin).encode()
    return await inside.call("subscribers", *arguments, env={**live.env, **env}, stdin=body)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_subscriber_is_put_from_a_file_and_its_secret_goes_into_another(live: Live, tmp_path: Path) -> None:
    file, secret = tmp_path / "wanted.json", tmp_path / "secret"
    file.write_text(json.dumps(BODY))
    made = await tocsin(live, "put", "filed", str(file), "--secret-to", str(secret))
    assert made.code == 0, made.err
    assert len(decode_secret(secret.read_text().strip())) == 32
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert "whsec_" not in made.out + made.err
    kept = secret.read_text()
    again = await tocsin(live, "put", "filed", str(file), "--secret-to", str(secret), "--json")
    assert (again.code, secret.read_text()) == (0, kept)
    assert "keeps its secret" in again.err
    rotated = await tocsin(live, "rotate-secret", "filed", "--grace-seconds", "0", "--secret-to", str(secret))
    assert f"The new secret is in {secret}" in rotated.err
    assert "do not sign any more" in rotated.err
    assert rotated.code == 0
    assert secret.read_text() != kept
    assert names(tmp_path) == ["secret", "wanted.json"]


async def test_a_refused_put_names_each_field_and_leaves_no_file(live: Live, tmp_path: Path) -> None:
    refused = await tocsin(
        live, "put", "refused", "-", "--secret-to", str(tmp_path / "s"), stdin={"url": "ftp://x", "no": 1}
    )
    assert refused.code == 1
    assert "/url: " in refused.err or "/no: " in refused.err
    assert names(tmp_path) == []
    assert (await tocsin(live, "show", "refused")).code == 1


async def test_a_secret_of_ones_own_is_taken_by_reference_and_never_shown(live: Live) -> None:
    secret = new_secret(b"o" * 32)
    put = ("put", "own", "-", "--secret", "env:OWN", "--json")
    for _ in range(2):
        done = await tocsin(live, *put, stdin=BODY, OWN=secret)
        assert done.code == 0, done.err
        assert secret not in done.out + done.err
    other = await tocsin(live, *put, stdin=BODY, OWN=new_secret(b"p" * 32))
    assert other.code == 1
    assert "/secret: " in other.err
    twice = await tocsin(live, *put, stdin={**BODY, "secret": secret}, OWN=secret)
    assert twice.code == 1


async def test_what_is_shown_for_put_can_be_put_and_masked_headers_cannot(live: Live) -> None:
    made = await tocsin(live, "put", "edited", "-", "--json", stdin=BODY)
    assert "keep it now" in made.err
    assert made.json["secret"].startswith("whsec_")
    shown = await tocsin(live, "show", "edited", "--for-put")
    put = await tocsin(live, "put", "edited", "-", "--json", stdin={**shown.json, "maxAttempts": 20})
    assert (put.code, put.json["maxAttempts"], put.json["headers"]) == (0, 20, BODY["headers"])
    key = (await inside.call("keys", "create", "onlooker", env=live.env)).out.strip()
    masked = await tocsin(live, "show", "edited", "--for-put", TOCSIN_API_KEY=key)
    assert "hidden-value" not in masked.out
    refused = await tocsin(live, "put", "edited", "-", stdin=masked.json)
    assert refused.code == 1
    assert "/headers/x-key: " in refused.err


async def test_a_subscriber_is_listed_paused_resumed_tested_and_deleted(live: Live) -> None:
    assert (await tocsin(live, "put", "steered", "-", stdin=BODY)).code == 0
    paused = await tocsin(live, "pause", "steered", "--reason", "a deploy", "--json")
    assert (paused.json["state"], paused.json["stateReason"]) == ("paused", "a deploy")
    listed = await tocsin(live, "list", "--limit", "500")
    [line] = [line for line in listed.out.splitlines() if line.startswith("steered ")]
    assert "paused" in line
    assert "steered" in [each["id"] for each in (await tocsin(live, "list", "--json")).json]
    sent = await tocsin(live, "test", "steered", "--json")
    shown = await inside.call("deliveries", "show", sent.json["deliveryId"], "--json", env=live.env)
    assert (shown.json["eventType"], shown.json["heldBy"]) == ("tocsin.test", "subscriber-paused")
    assert (await tocsin(live, "resume", "steered", "--json")).json["state"] == "active"
    assert (await tocsin(live, "delete", "steered")).code == 1
    assert "active" in (await tocsin(live, "show", "steered")).out
    assert (await tocsin(live, "delete", "steered", "--yes")).code == 0
    gone = await tocsin(live, "show", "steered")
    assert (gone.code, len(gone.err.strip().splitlines())) == (1, 1)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b"{" + b" " * 70_000 + b"}"])
async def test_what_is_no_json_object_is_refused_before_anything_is_sent(live: Live, raw: bytes) -> None:
    done = await inside.call("subscribers", "put", "x", "-", env=live.env, stdin=raw)
    assert done.code == 1
    assert "one JSON object" in done.err
