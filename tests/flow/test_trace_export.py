"""Sending traces away: to a collector over HTTP, and never at the cost of the work."""

import subprocess
import sys
from functools import partial

import pytest
from anyio import to_thread

from service import runtime
from service.flow import trace_export
from tests.receivers import Receiver


def test_without_an_endpoint_nothing_of_the_sdk_is_imported() -> None:
    program = (
        "import sys; import service.cli.main, service.cli.up, service.cli.worker, service.runtime, service.web.app; "
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', "
        "'requests', 'google.protobuf', 'service.flow.trac'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_without_an_endpoint_there_is_no_tracing() -> None:
    async with runtime._tracing(None) as tracing:
        assert tracing is None


@pytest.mark.parametrize("behind", ["", "/", "/v1/traces"])
async def test_spans_arrive_at_the_collector_before_the_process_ends(
    behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "tocsin-of-this-test")
    async with Receiver() as collector:
        async with runtime._tracing(collector.url + behind) as tracing:
            assert tracing is not None
            with tracing.settle([]):
                pass
        [got] = await collector.received(1)
    assert (got.target, got.header("content-type")) == ("/v1/traces", "application/x-protobuf")
    assert b"tocsin-of-this-test" in got.body
    assert b"settle" in got.body


async def test_a_collector_that_is_away_costs_one_warning_without_its_url(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_export, "EXPORT_SECONDS", 0.2)
    async with runtime._tracing("http://127.0.0.1:9/S3CRET") as tracing:
        assert tracing is not None
        for _ in range(3):
            with tracing.settle([]):
                pass
    said = "".join(capsys.readouterr())
    assert said.count("traces.lost") == 1
    assert "S3CRET" not in said


async def test_a_library_that_traces_by_itself_is_not_listened_to() -> None:
    from opentelemetry import trace  # noqa: PLC0415 - as a library would

    with await to_thread.run_sync(partial(trace_export.exporting, "http://127.0.0.1:9")) as tracing:
        assert tracing is not None
        assert not trace.get_tracer("a-library").start_span("GET /S3CRET").is_recording()
