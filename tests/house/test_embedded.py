"""The embedded PostgreSQL is there when it is needed and gone when nobody needs it, however its users end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from service.domain.errors import ConfigurationError
from service.embedded import EmbeddedPostgres
from service.postgres_signs import is_postgres
from tests.polling import eventually

QUICK = {"fsync": "off"}


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    """A folder whose cluster is made once; no server runs in it between two tests."""
    with TemporaryDirectory(prefix="tocsin-embedded-") as folder:
        EmbeddedPostgres(Path(folder), QUICK).stop()
        yield Path(folder)


async def ask(postgres: EmbeddedPostgres, question: str) -> object:
    engine = create_async_engine(postgres.url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        result = await connection.execute(text(question))
        answer = result.scalar_one() if result.returns_rows else None
    await engine.dispose()
    return answer


def user_process(data_dir: Path) -> "subprocess.Popen[str]":
    """Another process that uses the server until it is killed."""
    code = (
        "import sys, time; from pathlib import Path; from service.embedded import EmbeddedPostgres;"
        "it = EmbeddedPostgres(Path(sys.argv[1])); print('ready', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(data_dir)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    while "ready" not in process.stdout.readline():
        assert process.poll() is None
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


async def test_the_last_holder_stops_the_server_and_the_data_stays(data_dir: Path) -> None:
    first, second = EmbeddedPostgres(data_dir, QUICK), EmbeddedPostgres(data_dir, QUICK)
    assert first.url == second.url
    await ask(first, "CREATE TABLE kept AS SELECT 42 AS answer")
    first.stop()
    first.stop()
    assert await ask(second, "SELECT answer FROM kept") == 42
    second.stop()
    assert second._running() is None
    with EmbeddedPostgres(data_dir, QUICK) as again:
        assert await ask(again, "SELECT answer FROM kept") == 42


async def test_after_a_sigkill_the_next_process_goes_on_with_the_server_and_stops_it(data_dir: Path) -> None:
    process = user_process(data_dir)
    kill(process)
    with EmbeddedPostgres(data_dir, QUICK) as postgres:
        assert await ask(postgres, "SELECT 1") == 1
    assert postgres._running() is None


async def test_a_server_that_another_process_uses_is_left_running(data_dir: Path) -> None:
    process = user_process(data_dir)
    EmbeddedPostgres(data_dir).stop()
    joined = EmbeddedPostgres(data_dir)
    assert await ask(joined, "SELECT 1") == 1
    kill(process)
    joined.stop()
    assert joined._running() is None


async def test_a_killed_server_recovers_what_was_committed(data_dir: Path) -> None:
    process = user_process(data_dir)
    joined = EmbeddedPostgres(data_dir)
    await ask(joined, "CREATE TABLE recovered AS SELECT 42 AS answer")
    kill(process)
    os.kill(int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    joined.stop()
    with EmbeddedPostgres(data_dir, QUICK) as postgres:
        assert await ask(postgres, "SELECT answer FROM recovered") == 42


async def test_a_process_number_that_another_program_got_does_not_keep_the_server_down(data_dir: Path) -> None:
    (data_dir / "postgres" / "postmaster.pid").write_text(
        f"{os.getpid()}\n{data_dir}\n1\n5432\n{data_dir}\n\n1 1\nready\n"
    )
    with EmbeddedPostgres(data_dir, QUICK) as postgres:
        assert await ask(postgres, "SELECT 1") == 1


def test_data_of_another_major_release_is_refused(data_dir: Path) -> None:
    version = data_dir / "postgres" / "PG_VERSION"
    ours = version.read_text()
    version.write_text("9.6\n")
    with pytest.raises(ConfigurationError, match=r"data of PostgreSQL 9\.6"):
        EmbeddedPostgres(data_dir)
    version.write_text(ours)


async def test_a_path_too_long_for_a_socket_and_a_half_made_cluster_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    data_dir = tmp_path / ("long" * 25) / "with blank, comma & ünicode"
    (data_dir / "postgres.new" / "base").mkdir(parents=True)
    with EmbeddedPostgres(data_dir, QUICK) as postgres:
        assert await ask(postgres, "SELECT 1") == 1
        sockets = postgres._sockets
    assert sockets.stat().st_mode & 0o077 == 0
    sockets.chmod(0o777)
    with pytest.raises(ConfigurationError, match="is not ours alone"):
        EmbeddedPostgres(data_dir)
    sockets.rmdir()


def test_a_folder_that_cannot_be_made_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="TOCSIN_DATABASE_URL"):
        EmbeddedPostgres(tmp_path / "file" / "data")


async def test_nobody_else_may_enter_where_the_socket_is(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir, QUICK) as postgres:
        assert postgres._sockets.stat().st_mode & 0o077 == 0
        assert await ask(postgres, "SHOW listen_addresses") == ""


def test_a_process_that_ended_unasked_about_is_not_taken_for_a_living_one(tmp_path: Path) -> None:
    impostor = tmp_path / "postgres"
    impostor.symlink_to(sys.executable)
    process = subprocess.Popen(
        [impostor, "-c", "import sys; print(1, flush=True); sys.stdin.read()"], stdin=subprocess.PIPE, stdout=-1
    )
    assert process.stdin
    assert process.stdout
    process.stdout.readline()
    assert is_postgres(process.pid)
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_postgres(process.pid)
    process.wait()
    process.stdout.close()
    assert not is_postgres(process.pid)


async def test_a_server_that_died_under_its_users_is_started_again_by_one_of_them(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir, QUICK) as first, EmbeddedPostgres(data_dir, QUICK) as second:
        await ask(first, "CREATE TABLE survives AS SELECT 42 AS answer")
        assert not first.revive()
        os.kill(int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        assert await eventually(first.revive)
        assert not second.revive()
        assert first.url == second.url
        assert await ask(second, "SELECT answer FROM survives") == 42
    assert not first.revive()
    assert first._running() is None
