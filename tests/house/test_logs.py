"""Log lines stay lines, whoever wrote what is in them."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from service import logs


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_ours_and_the_libraries_lines_are_json_alike(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    structlog.get_logger().info("run.claimed", job="a", run_id="x\ny")
    logging.getLogger("some.library").warning("careful %s", "now")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["level"], ours["run_id"]) == ("run.claimed", "info", "x\ny")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("careful now", "warning", "some.library")
    assert ours["timestamp"].endswith("Z")


def test_on_the_console_a_value_cannot_begin_a_line_or_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("console")
    structlog.get_logger().info("run.claimed", run_id="x\r\n2026 [info] forged\x1b[2J\u2028\ud800")
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert not {"\x1b", "\r", "\u2028", "\ud800"} & set(said)
    assert "forged" in said


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_traceback_shows_no_values_of_variables(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    logs.configure("json" if log_format == "json" else "console")
    secret = "S3" + "CRET"
    try:
        int("x" * len(secret))
    except ValueError:
        structlog.get_logger().exception("thing.failed")
    said = capsys.readouterr().err
    assert "ValueError" in said
    assert secret not in said


def test_the_chatter_of_http_libraries_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("console")
    for name in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(name).info("GET https://hooks.example/S3CRET")
    assert capsys.readouterr().err == ""
