"""What the commands say of retention: how much a run did, and when the last one did nothing."""

import re
from pathlib import Path
from typing import Any

import pytest

from service.cli.progress import describe
from service.cli.sweeping import KINDS, print_swept
from service.domain.retention import rules_of
from service.sources.retention import Progress
from service.store.database import Database
from service.store.vault import new_key
from tests.attic import retention_job
from tests.cli import inside
from tests.scenes import Scene


def test_a_run_of_retention_is_described_by_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    counts = dict.fromkeys(("pending", "leased", "delivered", "exhausted", "rejected", "ambiguous", "cancelled"), 0)
    run: dict[str, Any] = {"state": "running", "settled": False, "events": 0, "deliveries": counts | {"total": 0}}
    progress = {"phase": "payloads", "after": ["x", 1], "dryRun": False}
    nothing = {"seen": 0, "eligible": 0, "done": 0}
    kinds = {"payloads": {"seen": 7, "eligible": 0, "done": 0}, "deliveries": {"seen": 1_600, "eligible": 9, "done": 8}}
    assert describe(run) == describe(run | {"progress": {"at": 5}}) == "running: 0 events, 0 deliveries"
    assert describe(run | {"progress": progress | kinds}).endswith(
        "; deleted 8 of 1,600 deliveries, 0 of 7 payloads that are old enough"
    )
    assert describe(run | {"progress": progress | {"payloads": nothing}}).endswith("; nothing is old enough")
    dry = progress | kinds | {"dryRun": True}
    assert "; dry run: would delete 9 of 1,600 deliveries" in describe(run | {"progress": dry})
    print_swept(dry)
    heads, *rows = [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert heads == ["PHASE", "OLD ENOUGH", "NOBODY NEEDS", "WOULD BE DELETED"]
    assert rows == [["deliveries", "1,600", "9", "9"], ["payloads", "7", "0", "0"]]


def test_the_kinds_are_told_in_the_order_in_which_a_run_walks_them() -> None:
    assert tuple(Progress.start(rules_of(retention_job())).counts) == KINDS


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
    assert (await found())[1].startswith("retain failed (more than max_share): mend that, then `tocsin run retry ")
