"""Log lines stay lines, whoever wrote what is in them."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from service import logs
from service.domain.errors import Unavailable


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


def _fails(message: str) -> None:
    raise RuntimeError(message) from KeyError(message)


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_secrets_and_paths_are_cut_out_of_every_line(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    logs.configure("json" if log_format == "json" else "console")
    url = "https://user:S3CRET@hooks.example:8443/services/S3CRET?token=S3CRET#S3CRET"
    structlog.get_logger().warning("a.b", url=url, many=[{"in": url}], key="whsec_S3CRETS3CRET", odd=ValueError(url))
    logging.getLogger("some.library").warning("failed: %s with Bearer S3CRETS3CRET and tsk_S3CRETS3CRET", url)
    try:
        _fails(url)
    except RuntimeError:
        structlog.get_logger().exception("thing.failed")
        logging.getLogger("some.library").exception("it failed")
    said = capsys.readouterr().err
    assert "S3CRET" not in said
    assert (
        said.count("https://hooks.example:8443/…" if log_format == "console" else r"https://hooks.example:8443/\u2026")
        == 4
    )
    assert said.count("builtins.KeyError") == said.count("builtins.RuntimeError") == 2


def test_a_value_cannot_pass_for_another_field_or_turn_the_line_around(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("console")
    run_id = 'x" duplicate=False run=7\u202e\u2066\ufeff\x9b2J'
    structlog.get_logger().info("tick.accepted", run_id=run_id, duplicate=True, places=[run_id, "\x1b[2J"])
    said = capsys.readouterr().err
    assert """run_id='x" duplicate=False run=7""" in said
    assert not {"\u202e", "\u2066", "\ufeff", "\x9b", "\x1b"} & set(said)


def test_nothing_invisible_reaches_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("console")
    unseen = "\u061c\u00ad\u3164\u200d\ufe0f\u2800\U000e0041\u00a0"
    structlog.get_logger().info("tick.accepted", run_id=f"żółć{unseen}", places=[unseen, {unseen: unseen}])
    said = capsys.readouterr().err
    assert not set(unseen) & set(said)
    assert r"run_id=żółć\u061c\xad\u3164\u200d\ufe0f\u2800\U000e0041\xa0" in said


def test_a_value_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    structlog.get_logger().info("a.b", value="x" * 1_000_000)
    assert len(capsys.readouterr().err) < 3_000


def test_an_exception_says_what_is_our_own_or_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    for error in (Unavailable("away\nfor now"), FileNotFoundError(2, "No such file", "/S3CRET"), Refusal()):
        structlog.get_logger().error("a.b", exc_info=error)
    ours, systems, databases = (json.loads(line)["exception"] for line in capsys.readouterr().err.splitlines())
    assert ours == "service.domain.errors.Unavailable: away for now"
    assert systems == "builtins.FileNotFoundError: No such file"
    assert databases.endswith("Refusal: SQLSTATE 23505")


class Refusal(Exception):
    """As a driver's."""

    sqlstate = "23505"


def test_lines_written_by_the_batch_are_lines_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    logs.json_lines([{"event": "a.b", "value": "x\n\u2028\x9b\ud800\x7f\u00e9"}, {"event": "a.c", "value": None}])
    said = capsys.readouterr().err
    assert said.isascii()
    assert [json.loads(line)["value"] for line in said.splitlines()] == ["x\n\u2028\x9b\ud800\x7f\u00e9", None]
