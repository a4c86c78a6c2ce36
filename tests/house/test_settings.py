"""Settings are checked as a whole, and a refusal names the setting and the mend, never the value."""

from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from service import settings_page
from service.domain.errors import ConfigurationError
from service.settings import Settings, read_secret

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


class Refusal:
    """Sets variables and tells how they are refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def of(self, **variables: str) -> str:
        """The one line that start-up would end with."""
        for name, value in variables.items():
            self._monkeypatch.setenv(f"TOCSIN_{name}", value)
        with pytest.raises(ConfigurationError) as caught:
            Settings()
        return caught.value.detail


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    return Refusal(monkeypatch)


def test_without_any_variable_the_defaults_of_the_contract_hold() -> None:
    settings = Settings()
    assert settings.database_url is None
    assert settings.data_dir == Path(".tocsin")
    assert (settings.host, settings.port, settings.lease_seconds) == ("127.0.0.1", 8080, 60)
    assert (settings.worker_concurrency, settings.claim_batch, settings.drain_seconds) == (128, 200, 25)
    settings.check()


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "")
    monkeypatch.setenv("TOCSIN_PORT", "")
    assert (Settings().database_url, Settings().port) == (None, 8080)


def test_lists_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_EGRESS_ALLOW", " 127.0.0.0/8, ::1 ,")
    monkeypatch.setenv("TOCSIN_ENCRYPTION_KEYS", f"{KEY},{KEY}")
    settings = Settings()
    assert settings.egress_allow == (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    assert [key.get_secret_value() for key in settings.encryption_keys] == [KEY, KEY]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("postgres://u:p%40s@h:1/db", "postgresql+asyncpg://u:p%40s@h:1/db"),
        ("postgresql://h/db?sslmode=require&channel_binding=require", "postgresql+asyncpg://h/db?ssl=require"),
        ("postgresql+asyncpg://u@/db?host=/run/pg", "postgresql+asyncpg://u@/db?host=/run/pg"),
    ],
)
def test_any_spelling_of_a_postgresql_url_is_taken(monkeypatch: pytest.MonkeyPatch, given: str, taken: str) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", given)
    assert Settings().database_url == taken


def test_a_refusal_is_one_line_that_names_every_wrong_setting(refusal: Refusal) -> None:
    said = refusal.of(PORT="99999", LEASE_SECONDS="soon", LOG_FORMAT="xml", EGRESS_DENY="10.0.0.1/8")
    assert "\n" not in said
    for setting in ("TOCSIN_PORT: ", "TOCSIN_LEASE_SECONDS: ", "TOCSIN_LOG_FORMAT: ", "TOCSIN_EGRESS_DENY: "):
        assert setting in said
    assert "write 10.0.0.0/8" in said


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("DATABASE_URL", "mysql://u:S3CRET@h/db"),
        ("DATABASE_URL", "postgresql://u:S3CRET\u2100@h/db"),
        ("DATABASE_URL", "postgresql://u:S3CRET@h/db?nonsense=1"),
        ("DATABASE_URL", "postgresql://u:S3CRET@h:port/db"),
        ("DATABASE_URL", "postgresql://u:S3CRET@h:0/db"),
        ("DATABASE_URL", "postgresql://u:S3CRET@h:65536/db"),
        ("BOOTSTRAP_KEY", "S3CRET"),
        ("BOOTSTRAP_KEY", "S3CRET with blanks in it"),
        ("ENCRYPTION_KEYS", "S3CRET"),
        ("ENCRYPTION_KEYS", f"{KEY},S3CRET"),
        ("BOOTSTRAP_KEY", "env:NOT_SET_ANYWHERE"),
        ("BOOTSTRAP_KEY", "file:/not/there"),
    ],
)
def test_a_refused_secret_is_never_repeated(refusal: Refusal, setting: str, value: str) -> None:
    said = refusal.of(**{setting: value})
    assert said.startswith(f"TOCSIN_{setting}: ")
    assert "S3CRET" not in said


def test_no_secret_stands_in_the_settings_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "postgresql://u:S3CRET@h/db")
    monkeypatch.setenv("TOCSIN_BOOTSTRAP_KEY", "S3CRET-S3CRET-S3CRET")
    monkeypatch.setenv("TOCSIN_ENCRYPTION_KEYS", KEY)
    assert "S3CRET" not in repr(Settings())
    assert KEY not in repr(Settings())


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "grpc://collector", "http://", "http://user:ECHO@collector", "http://c/?key=ECHO"]
)
def test_an_endpoint_for_traces_is_a_url_without_credentials(refusal: Refusal, endpoint: str) -> None:
    said = refusal.of(OTLP_ENDPOINT=endpoint)
    assert said.startswith("TOCSIN_OTLP_ENDPOINT: must ")
    assert "ECHO" not in said


def test_a_shared_database_needs_encryption_keys_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "postgresql://u:p@h/db")
    with pytest.raises(ConfigurationError, match="TOCSIN_ENCRYPTION_KEYS must be set"):
        Settings().check()
    monkeypatch.setenv("TOCSIN_ENCRYPTION_KEYS", KEY)
    Settings().check()


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\n\n"])
def test_the_line_end_behind_a_secret_is_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    (tmp_path / "secret").write_bytes(f" a secret {ending}".encode())
    monkeypatch.setenv("A_SECRET", f" a secret {ending}")
    assert read_secret(f"file:{tmp_path}/secret") == b" a secret "
    assert read_secret("env:A_SECRET") == b" a secret "


def test_a_secret_given_in_place_of_its_reference_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_secret("S3CRET:value")
    assert "S3CRET" not in caught.value.detail


def test_an_attempt_may_last_less_than_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().longest_attempt_seconds == 50
    monkeypatch.setenv("TOCSIN_LEASE_SECONDS", "4")
    assert Settings().longest_attempt_seconds == 3


@pytest.mark.parametrize(("name", "field"), Settings.model_fields.items(), ids=lambda it: it if str(it) == it else "")
def test_every_setting_is_described(name: str, field: FieldInfo) -> None:
    assert field.description
    assert f"`TOCSIN_{name.upper()}`" in settings_page.page()


def test_the_page_of_settings_is_up_to_date() -> None:
    assert settings_page.main(["--check"]) == 0
