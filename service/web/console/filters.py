"""The query of a page: empty fields of a filter form are left out, the rest is what the API takes."""

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

from fastapi import Request
from pydantic import BaseModel, ValidationError

from service.domain.errors import Invalid
from service.web.faults import problems_of

ModelT = TypeVar("ModelT", bound=BaseModel)

PER_PAGE = 25


def asked(request: Request, model: type[ModelT], **defaults: str) -> ModelT:
    """The query of the page as the API's own model of it; `defaults` stand in for what is not given.

    Raises:
        Invalid: a filter cannot be understood; it is named, its value is not.

    """
    given = {name: value for name, value in request.query_params.items() if value.strip()}
    try:
        return model.model_validate(defaults | given)
    except ValidationError as error:
        raise Invalid(*problems_of(error.errors(include_url=False, include_input=False))) from None


def link(path: str, query: Mapping[str, object], **changes: object) -> str:
    """The path with this query, changed; what is None or empty is left out."""
    kept = {name: str(value) for name, value in {**query, **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path
