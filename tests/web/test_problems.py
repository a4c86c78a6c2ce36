"""Every refusal is a problem of the table, has a page, and says nothing of the input or of our insides."""

from collections.abc import Iterator
from html.parser import HTMLParser

import httpx
import pytest

from service.domain import errors
from service.domain.errors import Invalid, Problem, TocsinError
from service.web import problems
from service.web.problems import TABLE, Internal, document, kind_of
from tests.web.conftest import JOB, Api, problem


def tree(root: type[TocsinError]) -> Iterator[type[TocsinError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ in (errors.__name__, problems.__name__):
            yield from tree(child)


ANSWERED = [*tree(errors.Refused), *tree(errors.Unavailable)]


@pytest.mark.parametrize("kind", ANSWERED, ids=lambda kind: kind.__name__)
def test_every_refusal_has_its_own_place_in_the_table(kind: type[TocsinError]) -> None:
    assert kind in TABLE
    told = document(kind())
    assert told["type"] == f"/problems/{TABLE[kind].slug}"
    assert told["status"] == TABLE[kind].status
    assert told["detail"] == (kind.__doc__ or "").split("\n")[0]


def test_no_two_problems_share_a_slug_and_each_page_says_something_else() -> None:
    assert len({kind.slug for kind in TABLE.values()}) == len(TABLE)
    assert len({kind.mend for kind in TABLE.values()}) == len(TABLE)


@pytest.mark.parametrize("kind", TABLE.values(), ids=lambda kind: kind.slug)
async def test_every_problem_has_a_page_and_a_text(refusing: Api, kind: problems.Kind) -> None:
    path = problems.type_uri(kind)
    page = await refusing.client.get(path, headers={"accept": "text/html,*/*;q=0.8", "authorization": ""})
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert kind.mend in _text_of(page.text)
    text = await refusing.client.get(path, headers={"accept": "*/*"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert kind.title in text.text
    assert kind.mend in text.text


async def test_the_list_of_problems_leads_to_each(refusing: Api) -> None:
    page = (await refusing.client.get("/problems")).text
    assert all(f"'/problems/{kind.slug}'" in page for kind in TABLE.values())


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def _text_of(page: str) -> str:
    parser = _Text()
    parser.feed(page)
    return parser.text


def test_what_no_caller_can_mend_is_our_own_fault_and_stays_unsaid() -> None:
    for error in (errors.ConfigurationError("ECHO"), errors.DiscoveryFailed("ECHO"), TocsinError("ECHO")):
        assert kind_of(error)[0] is Internal
        assert "ECHO" not in str(document(error))


def test_a_validation_problem_carries_its_pointers() -> None:
    told = document(Invalid(Problem("/a", "is required"), Problem("/b/0", "must be a string")))
    assert told["errors"] == [
        {"pointer": "/a", "detail": "is required"},
        {"pointer": "/b/0", "detail": "must be a string"},
    ]


NOWHERE = [
    "/",
    "/nope",
    "/v1",
    "/v1/nope/ECHO",
    "/v1/runs/",
    "/v1/runs/ECHO",
    "/v1/runs/a%00b",
    "/v1/runs/%ED%A0%80",
    "/v1/runs/%FF",
    "/v1/runs/" + "x" * 5000,
    "/v1/runs/019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11",
    "/v1/runs/{019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11}",
    "/v1/events/a%00b",
    "/v1/events/019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11",
    "/v1/deliveries/dlv_" + "0" * 32,
    "/v1/deliveries/dlv_" + "v" * 32,
    "/v1/deliveries/a%00b",
    "/v1/jobs/nope",
    "/v1/jobs/a%00b",
    "/v1/jobs/" + "x" * 5000,
    f"/v1/jobs/{JOB}/",
    f"/v1/jobs/{JOB}%2Fnope",
    "/v1/subscribers/nope",
    "/v1/subscribers/a%00b",
    "/problems/nope",
    "/problems/a%00b",
    "/docs/",
]


@pytest.mark.parametrize("path", NOWHERE)
async def test_what_is_not_there_is_a_problem_and_no_redirect(refusing: Api, path: str) -> None:
    problem(await refusing.client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", f"/v1/jobs/{JOB}/ticks", "POST"),
        ("PUT", f"/v1/jobs/{JOB}/ticks/", "POST"),
        ("DELETE", "/v1/runs", "GET"),
        ("POST", "/livez", "GET, HEAD"),
        ("PATCH", "/v1/events", "GET, POST"),
        ("PATCH", "/v1/subscribers/x", "DELETE, GET, PUT"),
        ("TRACE", "/v1/runs", "GET"),
        ("ECHO", "/v1/runs", "GET"),
    ],
)
async def test_another_method_is_a_problem_that_names_the_right_one(
    refusing: Api, method: str, path: str, allowed: str
) -> None:
    answer = await refusing.client.request(method, path)
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allowed


async def test_our_own_fault_is_a_problem_without_its_reason(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object, **__: object) -> None:
        message = "ECHO of a statement and its secrets"
        raise RuntimeError(message)

    monkeypatch.setattr("service.web.runs.views.runs", fails)
    answer = await api.client.get("/v1/runs")
    problem(answer, 500, "internal")
    logged = capsys.readouterr()
    assert "request.failed" in logged.out + logged.err
    assert "RuntimeError" in logged.out + logged.err
    assert "ECHO" not in logged.out + logged.err


async def test_every_answer_is_closed_to_sniffing_and_caches(client: httpx.AsyncClient) -> None:
    for path in ("/livez", "/docs", "/v1/runs", "/nope"):
        headers = (await client.get(path)).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
