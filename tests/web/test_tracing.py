"""Traces: from a scheduler's tick to what a receiver gets, one link after another, with nothing secret in them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind

from service.domain.model import Outcome
from service.flow.tracing import ROUTE, Ids, Tracing
from service.web.state import state_of
from tests.receivers import Answer, Receiver
from tests.scenes import Scene
from tests.web.conftest import JOB, JOBS, Api, instant, tick

PATH = f"/v1/jobs/{JOB}/ticks"
CALLERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Traced:
    """An API and a worker's parts that are traced into memory."""

    api: Api
    tracing: Tracing
    memory: InMemorySpanExporter
    cutoff: str = field(default_factory=instant)
    scene: Scene = field(init=False)

    def __post_init__(self) -> None:
        """Trace the API too."""
        state = state_of(self.api.app)
        state.runtime = replace(state.runtime, tracing=self.tracing)
        self.scene = self.api.scene

    async def tick(self, run_id: str = "r1", **headers: str) -> None:
        """One signed tick."""
        await self.api.client.post(PATH, json=tick(run_id, self.cutoff), headers={"authorization": "", **headers})

    async def work(self) -> None:
        """Discover one run, and make one attempt at what is due."""
        await replace(self.scene.discovery(JOBS[JOB]), tracing=self.tracing).once()
        dispatcher = self.scene.dispatcher()
        dispatcher._attempts._tracing = dispatcher.settler._tracing = self.tracing
        await dispatcher.once()

    def spans(self, name: str) -> Sequence[ReadableSpan]:
        """The ended ones of this name, oldest first."""
        return [span for span in self.memory.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        """The only one."""
        [span] = self.spans(name)
        return span


@pytest.fixture
def traced(api: Api) -> Iterator[Traced]:
    memory, ids = InMemorySpanExporter(), Ids()
    provider = TracerProvider(id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    yield Traced(api, Tracing(provider, ids), memory)
    provider.shutdown()


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Its trace and itself."""
    return (span.context.trace_id, span.context.span_id)


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    """What it is linked to."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def test_a_schedulers_trace_leads_to_the_run_the_request_and_the_receiver(traced: Traced) -> None:
    async with Receiver() as receiver:
        await traced.scene.subscriber("a", receiver.url)
        await traced.tick(traceparent=CALLERS)
        await traced.work()
        [got] = await receiver.received(1)
    ticked, run, page = (
        traced.span(f"POST {PATH.replace(JOB, '{job}')}"),
        traced.span("run"),
        traced.spans("discovery.page"),
    )
    attempt, settle = traced.span("POST"), traced.span("settle")
    assert f"{ticked.context.trace_id:032x}" == CALLERS.split("-")[1]
    assert ticked.parent is not None
    assert f"{ticked.parent.span_id:016x}" == CALLERS.split("-")[2]
    assert (linked(ticked), linked(run), linked(attempt), linked(settle)) == (
        [ids(run)],
        [ids(ticked)],
        [ids(run)],
        [ids(attempt)],
    )
    assert {(each.context.trace_id, each.parent and each.parent.span_id) for each in page} == {ids(run)}
    trace_id, span_id = ids(attempt)
    assert got.header("traceparent") == f"00-{trace_id:032x}-{span_id:016x}-01"


async def test_spans_say_what_came_of_it_in_the_terms_of_the_http_conventions(traced: Traced) -> None:
    async with Receiver(Answer(503)) as receiver:
        await traced.scene.subscriber("a", receiver.url)
        await traced.tick()
        await traced.tick()
        await traced.work()
        await traced.scene.make_due()
        await traced.work()
        [view] = await traced.scene.views("a")
    first, again = (dict(span.attributes or {}) for span in traced.spans(f"POST {PATH.replace(JOB, '{job}')}"))
    assert (first["http.response.status_code"], again["http.response.status_code"]) == (202, 200)
    assert (first["http.route"], first["tocsin.job"], again["tocsin.duplicate"]) == ("/v1/jobs/{job}/ticks", JOB, True)
    assert (traced.span("run").attributes or {})["tocsin.state"] == "completed"
    failed, delivered = traced.spans("POST")
    assert failed.kind is SpanKind.CLIENT
    assert (failed.status.is_ok, delivered.status.is_ok) == (False, True)
    assert failed.context.trace_id == delivered.context.trace_id
    told = dict(failed.attributes or {})
    assert (told["server.address"], told["server.port"]) == ("127.0.0.1", receiver.port)
    assert (told["http.response.status_code"], told["error.type"]) == (503, "503")
    assert (told["tocsin.delivery"], told["tocsin.run"], told["tocsin.subscriber"]) == (view.id, str(view.run), "a")
    assert (told["tocsin.outcome"], told["tocsin.attempt"]) == (Outcome.SERVER_ERROR, 1)
    assert (delivered.attributes or {})["http.request.resend_count"] == 1


async def test_no_payload_secret_or_path_is_in_any_span(traced: Traced) -> None:
    async with Receiver(Answer(500, body=b"S3CRET answer")) as receiver:
        secret = await traced.scene.subscriber("a", f"{receiver.url}/S3CRET?token=S3CRET", headers={"x-key": "S3CRET"})
        run_id = "https://scheduler.example/S3CRET?token=S3CRET"
        await traced.tick(run_id, **{"x-anything": "S3CRET", "tracestate": "a=S3CRET"})
        await traced.work()
    with pytest.raises(ValueError, match="S3CRET"), traced.tracing.settle([]):
        raise ValueError("a row with S3CRET in it")
    told = "".join(span.to_json() for span in traced.memory.get_finished_spans())
    assert "S3CRET" not in told
    assert secret not in told
    assert "ValueError" in told
    ids = {name: (traced.span(name).attributes or {})["tocsin.run_id"] for name in (f"POST {ROUTE}", "run")}
    assert set(ids.values()) == {"https://scheduler.example/…"}


async def test_only_a_caller_who_may_tick_is_traced(traced: Traced) -> None:
    await traced.api.client.post(PATH, json=tick() | {"signature": "0" * 64}, headers={"traceparent": CALLERS})
    assert traced.memory.get_finished_spans() == ()
    await traced.tick(traceparent="00-junk-01")
    await traced.api.client.post(PATH, json=tick(cutoff="2020-01-01T00:00:00Z"), headers={"authorization": ""})
    taken, refused = traced.memory.get_finished_spans()
    assert taken.parent is None
    assert (refused.attributes or {})["http.response.status_code"] == 422
    [row] = await traced.scene.execute("SELECT traceparent FROM tocsin.runs")
    assert row.traceparent == "00-{:032x}-{:016x}-01".format(*ids(taken))


async def test_whoever_takes_a_run_over_goes_on_with_its_trace(traced: Traced) -> None:
    await traced.tick()
    discovery = replace(traced.scene.discovery(JOBS[JOB]), tracing=traced.tracing)
    await discovery.once()
    await traced.scene.execute("UPDATE tocsin.runs SET state = 'running', lease_expires_at = now() - interval '1 s'")
    await discovery.once()
    first, second = traced.spans("run")
    assert first.context.trace_id == second.context.trace_id
    assert first.context.span_id != second.context.span_id


async def test_what_is_not_sampled_tells_the_receiver_so(traced: Traced) -> None:
    ids = Ids()
    traced.tracing = Tracing(TracerProvider(sampler=ALWAYS_OFF, id_generator=ids, shutdown_on_exit=False), ids)
    async with Receiver() as receiver:
        await traced.scene.subscriber("a", receiver.url)
        await traced.tick()
        await traced.work()
        [got] = await receiver.received(1)
    assert (got.header("traceparent") or "").endswith("-00")


async def test_with_the_sdk_disabled_receivers_get_a_trace_as_if_nothing_were_traced(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    ids = Ids()
    traced.tracing = Tracing(TracerProvider(id_generator=ids, shutdown_on_exit=False), ids)
    async with Receiver() as receiver:
        await traced.scene.subscriber("a", receiver.url)
        await traced.tick()
        await traced.work()
        [got] = await receiver.received(1)
    body = json.loads(got.body)
    assert (got.header("traceparent") or "").startswith(f"00-{body['id'].replace('-', '')}-")
