"""Where spans go: in batches to an OTLP collector over HTTP, beside the event loop, and never in anybody's way."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from service import __version__
from service.flow.tracing import Ids, Tracing

log = structlog.get_logger()

SIGNAL: Final = "/v1/traces"
"""What OTLP/HTTP puts behind the endpoint."""
EXPORT_SECONDS: Final = 3.0
"""A batch is tried no longer: spans are lost rather than kept, and a stopping process waits at most twice as long."""
_CHATTER: Final = ("opentelemetry", "urllib3")
"""Their lines hold the collector's URL, whose path may be a secret; `traces.lost` stands for them."""


class Told(SpanExporter):
    """Tells of lost spans once, and once when they arrive again; when closing, gives up with the first failure."""

    def __init__(self, exporter: SpanExporter) -> None:
        """Export through `exporter`."""
        self._exporter = exporter
        self._lost = 0
        self.closing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Called on the processor's own thread."""
        if self.closing and self._lost:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                log.warning("traces.lost", spans=len(spans), mend="see that TOCSIN_OTLP_ENDPOINT answers")
            self._lost += len(spans)
        elif self._lost:
            log.info("traces.arriving", lost=self._lost)
            self._lost = 0
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


@contextmanager
def exporting(endpoint: str) -> Iterator[Tracing]:
    """Traces to this OTLP endpoint. Leaving blocks while the last spans are sent, twice EXPORT_SECONDS at most.

    The provider is not made the process's: no library's own spans, which may hold paths, get into it.
    `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS` and the like
    are obeyed as everywhere.
    """
    for name in _CHATTER:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    named = Resource.create({"service.name": "tocsin", "service.version": __version__})
    ids = Ids()
    provider = TracerProvider(
        resource=named.merge(OTELResourceDetector().detect()), shutdown_on_exit=False, id_generator=ids
    )
    told = Told(OTLPSpanExporter(endpoint.removesuffix("/").removesuffix(SIGNAL) + SIGNAL, timeout=EXPORT_SECONDS))
    provider.add_span_processor(BatchSpanProcessor(told))
    try:
        yield Tracing(provider, ids)
    finally:
        told.closing = True
        # On a thread that nobody waits for: a collector that drips its answer would hold it for half a minute.
        closing = Thread(target=provider.shutdown, daemon=True)
        closing.start()
        closing.join(2 * EXPORT_SECONDS)
