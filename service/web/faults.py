"""Validation faults in plain words with a pointer, and without anything of the input."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic_core import ErrorDetails

from service.domain.errors import Problem
from service.domain.jsontext import MAX_PROBLEMS, pointer

_Limits = Mapping[str, Any]

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is required",
        "string_type": "must be a string",
        "int_type": "must be an integer",
        "int_parsing": "must be an integer",
        "int_from_float": "must be an integer",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "finite_number": "must be a finite number",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "list_type": "must be an array",
        "tuple_type": "must be an array",
        "dict_type": "must be an object",
        "model_type": "must be an object",
        "model_attributes_type": "must be an object",
    }
)

_MEASURED: Mapping[str, Callable[[_Limits], str]] = MappingProxyType(
    {
        "literal_error": lambda limits: f"must be {limits['expected']}",
        "enum": lambda limits: f"must be {limits['expected']}",
        "greater_than": lambda limits: f"must be greater than {limits['gt']}",
        "greater_than_equal": lambda limits: f"must be at least {limits['ge']}",
        "less_than": lambda limits: f"must be less than {limits['lt']}",
        "less_than_equal": lambda limits: f"must be at most {limits['le']}",
        "string_too_short": lambda limits: f"must have at least {limits['min_length']} characters",
        "string_too_long": lambda limits: f"must have at most {limits['max_length']} characters",
        "too_short": lambda limits: f"must have at least {limits['min_length']} items",
        "too_long": lambda limits: f"must have at most {limits['max_length']} items",
        "value_error": lambda limits: str(limits["error"]),
    }
)
"""What our own validators raise as ValueError is shown as it is: they promise to keep the value out of it."""


def problems_of(faults: Sequence[ErrorDetails] | Sequence[Any]) -> tuple[Problem, ...]:
    """The first faults that pydantic found; of each, where it is and what would be right."""
    return tuple(_problem(fault["loc"], fault["type"], fault.get("ctx", {})) for fault in faults[:MAX_PROBLEMS])


def _problem(place: Sequence[str | int], kind: str, limits: _Limits) -> Problem:
    where = pointer(*place)
    if kind == "extra_forbidden":
        named = where != pointer(*place[:-1])
        return Problem(where, "is not known here" if named else "has a field that is not known here")
    if measured := _MEASURED.get(kind):
        return Problem(where, measured(limits))
    return Problem(where, _WORDS.get(kind, "cannot be accepted"))
