"""The report over HTTP: empty for a house in order, and every finding with its mend."""

from tests.web.conftest import JOB, Api, tick


async def test_a_house_in_order_has_no_findings(api: Api) -> None:
    await api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick())
    report = (await api.client.get("/v1/reconciliation")).json()
    assert set(report) == {"at", "findings", "unchecked"}
    assert (report["findings"], report["unchecked"]) == ([], [])


async def test_a_finding_names_its_kind_examples_and_mend(api: Api) -> None:
    accepted = await api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick())
    await api.scene.execute("UPDATE tocsin.runs SET claimed_at = now() - interval '1 hour'")
    [finding] = (await api.client.get("/v1/reconciliation")).json()["findings"]
    run = accepted.json()["run"]["id"]
    assert (finding["kind"], finding["count"], finding["examples"]) == ("stuck-run", 1, [run])
    assert finding["detail"]
    assert "worker" in finding["mend"]
