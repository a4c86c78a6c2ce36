"""What a worker without an API serves: its own counts and whether it lives. It asks nothing of the database."""

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.flow.counters import Counters


def worker_app(counters: Counters) -> ASGIApp:
    """Answer `GET /metrics` and `GET /livez`, and nothing else."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(counters, scope)(scope, receive, send)

    return app


def _answer(counters: Counters, scope: Scope) -> Response:
    if scope["path"] not in ("/metrics", "/livez"):
        return Response(status_code=404)
    if scope["method"] not in ("GET", "HEAD"):
        return Response(status_code=405, headers={"allow": "GET, HEAD"})
    if scope["path"] == "/livez":
        return JSONResponse({"status": "ok"})
    return Response(counters.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
