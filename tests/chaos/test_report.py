"""The command that a chaos run names for doing it again."""

import shlex
import sys

import pytest

from tests.chaos import __main__ as command
from tests.chaos.plan import Sizes
from tests.chaos.report import again


def test_the_command_for_the_same_run_is_the_houses_and_takes_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    make, target, arguments = shlex.split(again(7, Sizes(5_000, 30, 3, 2)))
    given = arguments.removeprefix("ARGS=")
    assert (make, target, arguments.startswith("ARGS=")) == ("make", "chaos", True)
    monkeypatch.setattr(sys, "argv", ["tests.chaos", *given.split()])
    told = command._arguments()
    assert (told.seed, told.deliveries, told.worker_kills, told.api_kills, told.postgres_kills) == (7, 5_000, 30, 3, 2)
