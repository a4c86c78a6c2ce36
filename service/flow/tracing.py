"""Traces: what OpenTelemetry is told of ticks, runs, pages, attempts and settlements; imported only where it is wanted.

A trace is linked to the next one instead of growing into it: a tick may lead to a hundred thousand requests, and no
viewer shows those as one tree. The ids of a run's and of an event's trace are made from their own ids, so that any
process can link to them without asking, and all attempts at an event hang together.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service import __version__
from service.domain.identifiers import delivery_id
from service.domain.model import Answer, Claimed, EventId, LeasedRun, Outcome, RunId
from service.domain.redaction import redacted
from service.flow.send import Request
from service.store.settlements import Settled

MAX_LINKS: Final = 128
"""Of one span; what SDKs and viewers take by default."""
ROUTE: Final = "/v1/jobs/{job}/ticks"
"""Of ticks, as a template: no path that was called is ever told."""
_PARENT: Final = "traceparent"
_NOT_SENT: Final = frozenset({Outcome.SHADOW, Outcome.IN_DOUBT})
_PROPAGATOR: Final = TraceContextTextMapPropagator()

Attributes = Mapping[str, str | int | bool]


class Ids(RandomIdGenerator):
    """Random ids, unless the next span's were given; spans are started on the event loop's thread alone."""

    def __init__(self) -> None:
        """Nothing is given yet."""
        self.trace_id: int | None = None
        self.span_id: int | None = None

    def generate_trace_id(self) -> int:
        """The given one, or a random one."""
        return self.trace_id or super().generate_trace_id()

    def generate_span_id(self) -> int:
        """The given one, or a random one."""
        return self.span_id or super().generate_span_id()

    def is_trace_id_random(self) -> bool:
        """No: some are made from our own ids, though they are spread as evenly, which sampling by ratio needs."""
        return False


class TickSpan:
    """The open span of one tick."""

    def __init__(self, span: Span) -> None:
        """Tell of the tick through `span`."""
        self._span = span
        self.traceparent = _spelled(span)
        """To be kept with the run; None where the SDK is disabled."""

    def refused(self, status: int) -> None:
        """The tick has no run; a server's span has failed only with 5xx (HTTP semantic conventions)."""
        self._span.set_attributes({"http.response.status_code": status, "error.type": str(status)})
        if status >= 500:  # noqa: PLR2004
            self._span.set_status(StatusCode.ERROR)

    def accepted(self, run: RunId, *, run_id: str, duplicate: bool) -> None:
        """The run that the tick has, whose trace is linked."""
        self._span.set_attribute("http.response.status_code", 200 if duplicate else 202)
        self._span.set_attributes({"tocsin.run": str(run), "tocsin.run_id": redacted(run_id)})
        self._span.set_attribute("tocsin.duplicate", duplicate)
        self._span.add_link(_of_run(run))


class Tracing:
    """Starts the spans of this process. None of them holds a payload, a secret, or the path of a URL.

    A scheduler's run id may be a URL or hold a token, and is cut as in the log; all else is ids and our own words.
    """

    def __init__(self, provider: TracerProvider, ids: Ids) -> None:
        """Send spans to `provider`, which takes its ids from `ids`."""
        self._ids = ids
        self._tracer = provider.get_tracer("tocsin", __version__)

    @contextmanager
    def tick(self, job: str, scheme: str, traceparent: str | None) -> Iterator[TickSpan]:
        """One authenticated tick; it goes on with the trace of its caller, where that is well-formed."""
        attributes = {"http.request.method": "POST", "http.route": ROUTE, "url.scheme": scheme, "tocsin.job": job}
        span = self._start(f"POST {ROUTE}", attributes, SpanKind.SERVER, context=_continued(traceparent))
        try:
            yield TickSpan(span)
        finally:
            span.end()

    @contextmanager
    def run(self, run: LeasedRun) -> Iterator[None]:
        """A worker's share of a run, for as long as it has the lease; what happens within is below it."""
        first = _of_run(run.id)
        trace_id, span_id = first.trace_id, first.span_id if run.lease_seq == 1 else None
        links = [tick] if (tick := _parsed(run.traceparent)) else []
        attributes = {"tocsin.run": str(run.id), "tocsin.job": run.job, "tocsin.run_id": redacted(run.run_id)}
        opened = self._open("run", attributes, links=links, trace_id=trace_id, span_id=span_id)
        with opened as span, trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield

    def page(self) -> AbstractContextManager[Span]:
        """One page of discovery, of the run that is open here."""
        return self._open("discovery.page", {}, context=trace.set_span_in_context(trace.get_current_span()))

    def ended(self, state: str) -> None:
        """What has become of the run that is open here."""
        span = trace.get_current_span()
        span.set_attribute("tocsin.state", state)
        if state == "failed":
            span.set_status(StatusCode.ERROR)

    async def attempt(self, claimed: Claimed, request: Request, send: Callable[[Request], Awaitable[Answer]]) -> Answer:
        """One request to a receiver, who is told of this span; what `send` returns."""
        own = _of_attempt(claimed.event_id, claimed.row, claimed.lease_seq)
        links = [_of_run(claimed.run_id)] if claimed.run_id else []
        opened = self._open(
            "POST",
            _described(claimed, request),
            kind=SpanKind.CLIENT,
            links=links,
            trace_id=own.trace_id,
            span_id=own.span_id,
        )
        with opened as span:
            answer = await send(request._replace(traceparent=_spelled(span)))
            _note(span, answer)
            return answer

    def settle(self, batch: Sequence[Settled]) -> AbstractContextManager[Span]:
        """A batch of ended attempts that is written, linked to those that were requests."""
        sent = [item.claimed for item in batch if item.answer and item.answer.outcome not in _NOT_SENT]
        links = [_of_attempt(each.event_id, each.row, each.lease_seq) for each in sent[:MAX_LINKS]]
        return self._open("settle", {"tocsin.attempts": len(batch)}, links=links)

    @contextmanager
    def _open(self, name: str, attributes: Attributes, **how: Any) -> Iterator[Span]:
        """What `_start` starts. Of an exception only the class is told: its message may hold a value."""
        span = self._start(name, attributes, **how)
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()

    def _start(
        self,
        name: str,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        context: Context | None = None,
        links: Sequence[SpanContext] = (),
        trace_id: int | None = None,
        span_id: int | None = None,
    ) -> Span:
        """Without a context it begins a trace; without ids they are random."""
        self._ids.trace_id, self._ids.span_id = trace_id, span_id
        linked = [Link(each) for each in links]
        span = self._tracer.start_span(name, context or Context(), kind, dict(attributes), linked)
        self._ids.trace_id = self._ids.span_id = None
        return span


def _described(claimed: Claimed, request: Request) -> Attributes:
    """An attempt by the HTTP semantic conventions, less `url.full`, whose path and query may be secret."""
    to = urlsplit(claimed.origin)
    attributes: dict[str, str | int | bool] = {
        "http.request.method": "POST",
        "server.address": to.hostname or "",
        "server.port": to.port or 0,
        "tocsin.delivery": delivery_id(claimed.event_id, claimed.subscriber),
        "tocsin.event": str(claimed.event_id),
        "tocsin.subscriber": request.webhook_id.partition(":")[2],
        "tocsin.generation": request.generation,
        "tocsin.attempt": request.attempt,
    }
    if request.run_id is not None:
        attributes["tocsin.run"] = request.run_id
    if claimed.generation_attempts:
        attributes["http.request.resend_count"] = claimed.generation_attempts
    return attributes


def _note(span: Span, answer: Answer) -> None:
    span.set_attribute("tocsin.outcome", answer.outcome.value)
    if answer.status is not None:
        span.set_attribute("http.response.status_code", answer.status)
    if answer.outcome is not Outcome.DELIVERED:
        by_status = answer.status is not None and answer.status >= 400  # noqa: PLR2004
        span.set_attribute("error.type", str(answer.status) if by_status else answer.outcome.value)
        span.set_status(StatusCode.ERROR)


def _of_run(run: RunId) -> SpanContext:
    """The first span of the run's trace, whichever process opened it."""
    digest = hashlib.blake2b(run.bytes, digest_size=24, person=b"tocsin.run").digest()
    return _context(digest[:16], digest[16:])


def _of_attempt(event: EventId, row: int, lease_seq: int) -> SpanContext:
    """The attempt that was made under this lease, in the trace of its event."""
    trace_id = hashlib.blake2b(event.bytes, digest_size=16, person=b"tocsin.event").digest()
    lease = row.to_bytes(8, "big") + lease_seq.to_bytes(8, "big")
    return _context(trace_id, hashlib.blake2b(lease, digest_size=8, person=b"tocsin.attempt").digest())


def _context(trace_id: bytes, span_id: bytes) -> SpanContext:
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(
        int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big"), is_remote=True, trace_flags=sampled
    )


def _continued(traceparent: str | None) -> Context:
    """The caller's trace (W3C Trace Context); an empty context where there is none that can be read."""
    return _PROPAGATOR.extract({_PARENT: traceparent} if traceparent else {}, Context())


def _parsed(traceparent: str | None) -> SpanContext | None:
    found = trace.get_current_span(_continued(traceparent)).get_span_context()
    return found if found.is_valid else None


def _spelled(span: Span) -> str | None:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get(_PARENT)
