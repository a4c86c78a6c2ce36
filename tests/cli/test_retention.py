"""What the commands say of retention: how much a run did, and when the last one did nothing."""

from pathlib import Path
from typing import Any

from service.cli.progress import describe
from service.store.database import Database
from service.store.vault import new_key
from tests.attic import retention_job
from tests.cli import inside
from tests.scenes import Scene


def test_a_run_of_retention_is_described_by_what_it_did() -> None:
    counts = dict.fromkeys(("pending", "leased", "delivered", "exhausted", "rejected", "ambiguous", "cancelled"), 0)
    run: dict[str, Any] = {"state": "running", "settled": False, "events": 0, "deliveries": counts | {"total": 0}}
    progress = {"phase": "payloads", "after": ["x", 1], "dryRun": False}
    idle = {"seen": 7, "eligible": 0, "done": 0}
    kinds = {"deliveries": {"seen": 9, "eligible": 1_500, "done": 1_400}, "payloads": idle}
    assert describe(run) == describe(run | {"progress": {"at": 5}}) == "running: 0 events, 0 deliveries"
    assert describe(run | {"progress": progress | kinds}).endswith("; deliveries 1,400 of 1,500 eligible")
    assert describe(run | {"progress": progress | {"payloads": idle}}).endswith("; nothing eligible")
    assert "; dry run, deliveries" in describe(run | {"progress": progress | kinds | {"dryRun": True}})


async def test_the_doctor_warns_of_retention_that_never_ran_failed_or_deleted_nothing(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    scene, job = Scene(database), retention_job()
    config = tmp_path / "tocsin.toml"
    config.write_text('[jobs.retain]\nsource = "retention"\nsecrets = ["env:RETAIN_SECRET"]\n')
    env = {
        "TOCSIN_DATABASE_URL": database_url,
        "TOCSIN_ENCRYPTION_KEYS": new_key(),
        "TOCSIN_CONFIG": str(config),
        "RETAIN_SECRET": "r" * 32,
    }

    async def found() -> tuple[str, str]:
        told = await inside.call("doctor", "--json", "--url", "http://127.0.0.1:9", env=env)
        [finding] = [each for each in told.json if each["check"] == "retention"]
        return finding["status"], finding["detail"]

    assert (await found())[1].startswith("retain has never run")
    await scene.tick(job)
    await scene.discovery(job).once()
    assert await found() == ("ok", "nothing is wrong with the last runs of retain")
    await scene.execute("""UPDATE tocsin.runs SET progress = jsonb_set(progress, '{payloads,eligible}', '3')""")
    status, detail = await found()
    assert (status, "could have deleted payloads and deleted none" in detail) == ("warn", True)
    await scene.execute("UPDATE tocsin.runs SET state = 'failed', error = 'more than max_share'")
    assert (await found())[1].startswith("retain failed (more than max_share): mend that, then POST /v1/runs/")
