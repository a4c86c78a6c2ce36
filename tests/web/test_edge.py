"""The edge: a process that has too much to do says so at once, and whoever asks whether it lives is told."""

import asyncio

import httpx
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from service.web.edge import UNREFUSED, Edge
from tests.polling import eventually

MOST = 4


class Slow:
    """An app whose answers wait to be let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self.begun += 1
        if scope["path"] not in UNREFUSED:
            await self.go.wait()
        await PlainTextResponse("here you are")(scope, receive, send)


async def test_what_would_only_wait_is_refused_at_once_and_probes_are_answered() -> None:
    app = Slow()
    transport = httpx.ASGITransport(Edge(app, MOST))
    async with httpx.AsyncClient(transport=transport, base_url="http://tocsin") as client:
        with capture_logs() as logged:
            served = [asyncio.create_task(client.get("/v1/runs")) for _ in range(MOST)]
            await eventually(lambda: app.begun == MOST)
            for _ in range(2):
                refused = await client.get("/v1/runs")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
                assert refused.json()["type"] == "/problems/unavailable"
            for path in UNREFUSED:
                assert (await client.get(path)).status_code == 200
            app.go.set()
            assert {answer.status_code for answer in await asyncio.gather(*served)} == {200}
            assert (await client.get("/v1/runs")).status_code == 200
    assert [line["event"] for line in logged] == ["api.requests_refused"]
