"""Who else may tick a job is read as strictly as the rest: what anybody could pass is refused at start-up."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.config import load_jobs
from service.domain.errors import ConfigurationError
from service.domain.job import BearerConfig, OidcConfig
from service.runtime import _warn_of_bearers

GITHUB = 'issuer = "https://token.actions.githubusercontent.com"'
ISSUER, AUDIENCE = 'issuer = "https://accounts.google.com"', 'audience = "https://tocsin.example"'
CLAIMS = 'claims = { email = "a@b.example" }'


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "S3CRET-of-a-job-that-is-long-enough")
    monkeypatch.setenv("A_TOKEN", "T" * 32)
    monkeypatch.setenv("B_TOKEN", "U" * 32)
    monkeypatch.setenv("SHORT_TOKEN", "S3CRET" * 5)
    monkeypatch.setenv("ODD_TOKEN", "S3CRET S3CRET S3CRET S3CRET S3CRET S3CRET")


def oidc(*lines: str, name: str = "a") -> str:
    return "\n".join([f'[jobs."{name}"]', 'source = "tick"', f'[jobs."{name}".oidc]', *lines])


def bearer(*lines: str, name: str = "a", secrets: str = "") -> str:
    return "\n".join([f'[jobs."{name}"]', 'source = "tick"', secrets, f'[jobs."{name}".bearer]', *lines])


def load(folder: Path, text: str) -> dict[str, object]:
    path = folder / "tocsin.toml"
    path.write_text(text)
    return {name: job.oidc or job.bearer for name, job in load_jobs(path).items()}


def test_an_issuer_is_read_with_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, oidc(ISSUER, AUDIENCE, CLAIMS)) == {
        "a": OidcConfig("https://accounts.google.com", ("https://tocsin.example",), {"email": "a@b.example"}, "a")
    }


def test_everything_about_an_issuer_can_be_said(tmp_path: Path) -> None:
    lines = (
        'issuer = "https://id.example/tenant/"',
        'audience = ["one", "two"]',
        'claims = { repository_id = "74", level = 3, ref_protected = true }',
        'source = "octo"',
        'jwks_uri = "https://keys.example/jwks?v=1"',
        'algorithms = ["ES256", "EdDSA"]',
    )
    (read,) = load(tmp_path, oidc(*lines)).values()
    claims: dict[str, str | int | bool] = {"repository_id": "74", "level": 3, "ref_protected": True}
    assert read == OidcConfig(
        "https://id.example/tenant/",
        ("one", "two"),
        claims,
        "octo",
        ("ES256", "EdDSA"),
        "https://keys.example/jwks?v=1",
    )
    assert isinstance(read, OidcConfig)
    assert [type(value) for value in read.claims.values()] == [str, int, bool]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]", "localhost:5"])
def test_an_issuer_on_this_machine_may_be_tried_without_tls(tmp_path: Path, host: str) -> None:
    assert load(tmp_path, oidc(f'issuer = "http://{host}"', AUDIENCE, CLAIMS))


def test_static_tokens_are_read_and_not_shown(tmp_path: Path) -> None:
    (read,) = load(tmp_path, bearer('tokens = ["env:A_TOKEN", "env:B_TOKEN"]', 'run_id_header = "X-Run-Id"')).values()
    assert read == BearerConfig((b"T" * 32, b"U" * 32), "X-Run-Id")
    assert "TTT" not in repr(read)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[jobs."a"]\nsource = "tick"', 'jobs."a": needs secrets, or a table oidc or bearer'),
        (oidc(), 'jobs."a".oidc.issuer: Field required'),
        (oidc(ISSUER, AUDIENCE), 'jobs."a".oidc.claims: Field required'),
        (oidc(ISSUER, AUDIENCE, "claims = {}"), "must name whose tokens are meant"),
        (oidc(GITHUB, AUDIENCE, "claims = { repository_id = 74 }"), "put their values in quotes"),
        (oidc(ISSUER, AUDIENCE, "claims = { email_verified = true }"), "must name whose tokens are meant"),
        (oidc(ISSUER, AUDIENCE, 'claims = { iss = "x" }'), "must not have iss, which is checked in any case"),
        (oidc(ISSUER, AUDIENCE, "claims = { a = 1.5 }"), "must have a string, a whole number, true or false for a"),
        (oidc(ISSUER, AUDIENCE, "claims = { a = [] }"), "must have a string, a whole number, true or false for a"),
        (oidc(ISSUER, AUDIENCE, 'claims = { a = "" }'), "must have a string, a whole number, true or false for a"),
        (oidc(ISSUER, "audience = []", CLAIMS), 'jobs."a".oidc.audience'),
        (oidc(ISSUER, 'audience = ""', CLAIMS), 'jobs."a".oidc.audience.0: must not be empty'),
        (oidc('issuer = "http://id.example"', AUDIENCE, CLAIMS), 'jobs."a".oidc.issuer: must begin with https://'),
        (oidc('issuer = "http://127.0.0.1.example"', AUDIENCE, CLAIMS), "must begin with https://"),
        (oidc('issuer = "http://localhost.example"', AUDIENCE, CLAIMS), "must begin with https://"),
        (oidc('issuer = "http://10.0.0.1"', AUDIENCE, CLAIMS), "must begin with https://"),
        (oidc('issuer = "accounts.google.com"', AUDIENCE, CLAIMS), "must begin with https://"),
        (oidc('issuer = "https://u:S3CRET@id.example"', AUDIENCE, CLAIMS), "must not carry a user name"),
        (oidc('issuer = "https://id.example?x=1"', AUDIENCE, CLAIMS), "must not have a query"),
        (oidc(ISSUER, AUDIENCE, CLAIMS, 'jwks_uri = "http://k.example"'), "oidc.jwks_uri: must begin with https://"),
        (oidc(ISSUER, AUDIENCE, CLAIMS, 'algorithms = ["HS256"]'), "oidc.algorithms.0: must be one of ES256"),
        (oidc(ISSUER, AUDIENCE, CLAIMS, 'algorithms = ["none"]'), "must be one of ES256"),
        (oidc(ISSUER, AUDIENCE, CLAIMS, "algorithms = []"), 'jobs."a".oidc.algorithms'),
        (oidc(ISSUER, AUDIENCE, CLAIMS, 'source = "a\\nb"'), 'jobs."a".oidc.source: must not contain control'),
        (oidc(ISSUER, AUDIENCE, CLAIMS, f'source = "{"a" * 101}"'), "must have at most 100 bytes"),
        (oidc(ISSUER, AUDIENCE, CLAIMS, "leeway = 5"), 'jobs."a".oidc.leeway: Extra inputs'),
        (bearer("tokens = []"), 'jobs."a".bearer.tokens'),
        (bearer('tokens = ["env:NOT_SET"]'), 'jobs."a".bearer.tokens[0]: the environment variable NOT_SET'),
        (bearer('tokens = ["S3CRETS3CRETS3CRETS3CRETS3CRETS3CRET"]'), "must be given as env:NAME"),
        (bearer('tokens = ["env:SHORT_TOKEN"]'), "must be 32 to 500 visible ASCII characters"),
        (bearer('tokens = ["env:ODD_TOKEN"]'), "must be 32 to 500 visible ASCII characters"),
        (bearer('tokens = ["env:A_TOKEN"]', 'run_id_header = "Authorization"'), "is another one for each run"),
        (bearer('tokens = ["env:A_TOKEN"]', 'run_id_header = "X Y"'), "is another one for each run"),
        (
            bearer('tokens = ["env:A_SECRET"]', secrets='secrets = ["env:A_SECRET"]'),
            'jobs."a" and jobs."a".bearer have the same secret',
        ),
        (
            bearer('tokens = ["env:A_TOKEN"]') + "\n" + bearer('tokens = ["env:A_TOKEN"]', name="b"),
            'jobs."a".bearer and jobs."b".bearer have the same secret',
        ),
    ],
)
def test_what_would_let_anybody_in_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert said in caught.value.detail
    assert "\n" not in caught.value.detail
    assert "S3CRET" not in caught.value.detail


def test_who_switches_static_tokens_on_is_told_their_limits(tmp_path: Path) -> None:
    path = tmp_path / "tocsin.toml"
    path.write_text(bearer('tokens = ["env:A_TOKEN"]') + "\n" + oidc(ISSUER, AUDIENCE, CLAIMS, name="b"))
    with capture_logs() as told:
        _warn_of_bearers(load_jobs(path))
    (line,) = told
    assert (line["event"], line["log_level"], line["job"]) == ("ticks.bearer_allowed", "warning", "a")
    assert "whoever sees the token" in line["limits"]
    assert "TTT" not in str(line)
