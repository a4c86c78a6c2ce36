"""An answer as exact bytes, before it becomes a response: what an Idempotency-Key keeps and gives again."""

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self

from fastapi import Response

from service.domain.errors import TocsinError
from service.web.fields import Out
from service.web.problems import render

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body; the body may hold a secret that is shown once."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, content: Out, status: int = HTTPStatus.OK, location: str | None = None) -> Self:
        """The content as JSON, in camelCase; `location` is the path of what was made."""
        return cls.raw(content.model_dump_json(by_alias=True).encode(), status, location)

    @classmethod
    def raw(cls, body: bytes, status: int = HTTPStatus.OK, location: str | None = None) -> Self:
        """Bytes that are JSON already."""
        headers = {"content-type": JSON_TYPE} | ({"location": location} if location else {})
        return cls(int(status), headers, body)

    @classmethod
    def refusal(cls, error: TocsinError) -> Self:
        """The problem that says why not."""
        problem = render(error)
        return cls(problem.status, dict(problem.headers), problem.body)

    @classmethod
    def unpacked(cls, status: int, packed: bytes) -> Self:
        """The answer that `packed` was made of."""
        head, _, body = packed.partition(b"\n")
        return cls(status, json.loads(head), body)

    def packed(self) -> bytes:
        """Headers and body in one, for storing (sealed)."""
        return json.dumps(self.headers).encode() + b"\n" + self.body

    def response(self, *, replayed: bool = False) -> Response:
        """What goes out."""
        headers = self.headers | ({"idempotency-replayed": "true"} if replayed else {})
        return Response(self.body, self.status, headers)


def ok(content: Out) -> Response:
    """The answer to a read."""
    return Answer.of(content).response()
