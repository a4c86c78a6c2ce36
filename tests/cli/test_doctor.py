"""What the doctor says of subscribers that the settings of its shell do not suit."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from service.domain.model import Mode
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests.cli import inside
from tests.issuers import Issuer
from tests.scenes import Scene

KEY = new_key()
PATIENT = {"backoff_base_seconds": 1.0, "backoff_cap_seconds": 3600.0, "max_attempts": 30}


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database, vault=Vault([KEY]))


async def _doctor(database_url: str, **env: str) -> dict[str, Any]:
    """The finding of each check."""
    given = {"TOCSIN_DATABASE_URL": database_url, "TOCSIN_ENCRYPTION_KEYS": KEY, **env}
    told = await inside.call("doctor", "--json", "--url", "http://127.0.0.1:9", env=given)
    return {each["check"]: each for each in told.json}


async def test_names_are_looked_up_and_what_the_guard_says_is_told(scene: Scene, database_url: str) -> None:
    for slug in ("one", "two"):
        await scene.subscriber(slug, f"http://localhost:9/{slug}", **PATIENT)
    await scene.subscriber("nowhere", "http://nowhere.invalid/", **PATIENT)
    await scene.subscriber("shadow", "http://127.0.0.1:9/", mode=Mode.SHADOW, max_attempts=1)
    found = await _doctor(database_url)
    assert found["addresses"]["status"] == "warn"
    assert "2 of 4 subscribers" in found["addresses"]["detail"]
    assert "one: " in found["addresses"]["detail"]
    assert "loopback" in found["addresses"]["detail"]
    assert found["retries"]["status"] == "ok"
    allowed = await _doctor(database_url, TOCSIN_EGRESS_ALLOW="127.0.0.0/8,::1/128")
    assert allowed["addresses"]["status"] == "ok"


async def test_who_is_given_up_long_before_the_deadline_is_named_with_values_that_last(
    scene: Scene, database_url: str
) -> None:
    plain = {"backoff_base_seconds": 1.0, "backoff_cap_seconds": 900.0}
    await scene.subscriber("plain", "http://203.0.114.7/", **plain)
    await scene.subscriber("meant", "http://203.0.114.7/", deadline_seconds=120.0, **plain)
    detail = (await _doctor(database_url))["retries"]["detail"]
    assert "1 of 2 subscribers" in detail
    assert "plain after about 64 seconds of 3 days" in detail
    assert "30 and 3600 last about 9 hours" in detail


async def test_a_lease_that_the_default_timeout_does_not_fit_is_warned_of(scene: Scene, database_url: str) -> None:
    await scene.subscriber("brief", "http://203.0.114.7/", timeout_seconds=3.0)
    leases = (await _doctor(database_url, TOCSIN_LEASE_SECONDS="8"))["leases"]
    assert leases["status"] == "warn"
    assert "timeoutSeconds up to 6, or raise the lease to 20" in leases["detail"]


async def test_headers_that_no_key_opens_fail_with_the_mend(scene: Scene, database_url: str) -> None:
    await scene.subscriber("sealed", "http://203.0.114.7/", headers={"authorization": "Bearer t"})
    found = await _doctor(database_url, TOCSIN_ENCRYPTION_KEYS=new_key())
    assert found["secrets"]["status"] == "fail"
    assert "sealed" in found["secrets"]["detail"]
    assert "PUT the headers anew" in found["secrets"]["detail"]


async def test_a_variable_that_is_no_setting_is_warned_of_and_a_url_that_is_refused_fails(database_url: str) -> None:
    found = await _doctor(database_url, TOCSIN_PROT="1")
    assert found["settings"]["status"] == "warn"
    assert "TOCSIN_PROT is no setting" in found["settings"]["detail"]
    assert "did you mean TOCSIN_PORT?" in found["settings"]["detail"]
    elsewhere = make_url(database_url).set(database="nothing-of-this-name").render_as_string(hide_password=False)
    refused = await _doctor(elsewhere)
    assert refused["database"]["status"] == "fail"
    assert "no database of this name" in refused["database"]["detail"]


async def test_jobs_whose_ticks_repeat_an_old_run_static_tokens_and_issuers_out_of_reach_are_warned_of(
    scene: Scene, database_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "tocsin.toml"
    path.write_text(
        '[jobs.nightly]\nsource = "tick"\nevent_type = "a"\nsecrets = ["env:NIGHTLY_SECRET"]\n'
        '[jobs.ci]\nsource = "tick"\nevent_type = "a"\n'
        '[jobs.ci.oidc]\nissuer = "http://127.0.0.1:9"\naudience = "a"\nclaims.sub = "b"\n'
        '[jobs.bus]\nsource = "tick"\nevent_type = "a"\nbearer.tokens = ["env:BUS_TOKEN"]\n'
    )
    env = {"TOCSIN_CONFIG": str(path), "NIGHTLY_SECRET": "n" * 32, "BUS_TOKEN": "b" * 32}
    found = await _doctor(database_url, **env)
    assert (found["ticks"]["status"], found["bearers"]["status"]) == ("ok", "warn")
    assert found["bearers"]["detail"].startswith("bus: ")
    assert found["issuers"]["status"] == "warn"
    assert "http://127.0.0.1:9" in found["issuers"]["detail"]
    down = await _doctor(database_url, TOCSIN_EGRESS_ALLOW="127.0.0.0/8", **env)
    assert down["issuers"]["status"] == "warn"
    async with Issuer() as issuer:
        path.write_text(path.read_text().replace("http://127.0.0.1:9", issuer.url))
        let = await _doctor(database_url, TOCSIN_EGRESS_ALLOW="127.0.0.0/8", **env)
        assert let["issuers"]["status"] == "ok"
    await scene.execute("INSERT INTO tocsin.jobs (name, frozen_since) VALUES ('nightly', '2026-11-30T02:00Z')")
    await scene.execute("INSERT INTO tocsin.jobs (name, frozen_since) VALUES ('gone', now())")
    found = await _doctor(database_url, **env)
    assert found["ticks"]["status"] == "warn"
    assert "nightly since 2026-11-30 02:00 UTC" in found["ticks"]["detail"]
    assert "anew for each slot" in found["ticks"]["detail"]
    assert "gone" not in found["ticks"]["detail"]
