"""Signatures: ticks that come in are verified without a slip, webhooks that go out verify with the common library."""

import hashlib
import hmac
from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from service.domain import signing

RUN, CUTOFF = "nightly-2026-11-30", "2026-11-30T02:00:00Z"
SECRET, OLDER, STRANGE = b"the job's tick secret", b"the one before it", b"some other job's"
GOOD = hmac.new(SECRET, f"{RUN}.{CUTOFF}".encode(), hashlib.sha256).hexdigest()

VECTOR_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VECTOR_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
VECTOR_TIME = 1614265330
VECTOR_BODY = b'{"test": 2432232314}'
VECTOR_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_tick_signature_is_the_hmac_of_run_id_dot_cutoff() -> None:
    assert signing.tick_signature(SECRET, RUN, CUTOFF) == GOOD


@pytest.mark.parametrize("signature", [GOOD, GOOD.upper(), GOOD[:32] + GOOD[32:].upper()])
def test_a_tick_verifies_in_either_case_of_hex(signature: str) -> None:
    assert signing.verify_tick([SECRET], RUN, CUTOFF, signature)


@pytest.mark.parametrize("secrets", [[SECRET, OLDER], [OLDER, SECRET]])
def test_any_of_a_jobs_secrets_makes_a_valid_tick(secrets: list[bytes]) -> None:
    assert signing.verify_tick(secrets, RUN, CUTOFF, GOOD)


def test_the_strings_are_signed_as_they_came_and_not_as_they_might_be_written() -> None:
    run, cutoff = "café", "2026-11-30T03:00:00.000+01:00"
    signature = hmac.new(SECRET, f"{run}.{cutoff}".encode(), hashlib.sha256).hexdigest()
    assert signing.verify_tick([SECRET], run, cutoff, signature)
    assert not signing.verify_tick([SECRET], run, "2026-11-30T02:00:00Z", signature)
    assert not signing.verify_tick([SECRET], "cafe\u0301", cutoff, signature)


@pytest.mark.parametrize(
    "signature",
    [
        *("", " ", GOOD[:-1], GOOD + "0", GOOD + "\n", " " + GOOD, "0x" + GOOD[2:]),
        *(f"SHA2-256(stdin)= {GOOD}", f"(stdin)= {GOOD}", f"sha256={GOOD}", f"v1,{GOOD}"),
        *("é" * 64, "٥" * 64, "\x00" * 64, "\ud800" * 64, GOOD[:63] + "\u0130"),
        *(" ".join(GOOD[at : at + 2] for at in range(0, 64, 2)), "0" * 64, "z" * 64),
        b64encode(bytes.fromhex(GOOD)).decode(),
        *(None, True, 1, 1.0, [], [GOOD], {}, {"signature": GOOD}, GOOD.encode()),
    ],
)
def test_what_is_no_signature_of_this_tick_is_refused(signature: object) -> None:
    assert not signing.verify_tick([SECRET], RUN, CUTOFF, signature)


@pytest.mark.parametrize("field", [None, 1, True, [], {}, b"bytes", "\ud800", "lone \udfff"])
def test_a_tick_whose_fields_are_no_text_is_refused(field: object) -> None:
    assert not signing.verify_tick([SECRET], field, CUTOFF, GOOD)
    assert not signing.verify_tick([SECRET], RUN, field, GOOD)


def test_nothing_verifies_for_a_job_without_secrets() -> None:
    assert not signing.verify_tick([], RUN, CUTOFF, GOOD)
    assert not signing.verify_tick([], RUN, CUTOFF, signing.tick_signature(bytes(32), RUN, CUTOFF))


def test_every_secret_is_compared_and_of_an_unknown_job_one_that_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    genuine = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return genuine(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    for secrets, work in (([], 1), ([SECRET], 1), ([SECRET, OLDER], 2), ([OLDER, SECRET], 2)):
        compared.clear()
        assert signing.verify_tick(secrets, RUN, CUTOFF, GOOD) is bool(secrets)
        assert len(compared) == work


def test_another_jobs_secret_does_not_verify() -> None:
    assert not signing.verify_tick([STRANGE], RUN, CUTOFF, GOOD)


@given(st.text(), st.text(), st.one_of(st.text(), st.integers(), st.binary()))
def test_no_junk_makes_verification_fail_otherwise_than_by_saying_no(run: str, cutoff: str, signature: object) -> None:
    assert signing.verify_tick([SECRET], run, cutoff, signature) is False


def test_the_published_vector_of_standard_webhooks_holds() -> None:
    secret = signing.decode_secret(VECTOR_SECRET)
    assert signing.sign([secret], VECTOR_ID, VECTOR_TIME, VECTOR_BODY) == VECTOR_SIGNATURE


@given(st.binary(min_size=24, max_size=64), st.text(st.characters(codec="ascii"), min_size=1), st.text())
def test_the_common_library_signs_alike(key: bytes, webhook_id: str, body: str) -> None:
    text = signing.new_secret(key)
    theirs = standardwebhooks.Webhook(text).sign(webhook_id, datetime.fromtimestamp(VECTOR_TIME, UTC), body)
    assert signing.sign([signing.decode_secret(text)], webhook_id, VECTOR_TIME, body.encode()) == theirs


def test_during_a_rotation_a_receiver_verifies_with_either_secret() -> None:
    older, newer = signing.new_secret(b"o" * 32), signing.new_secret(b"n" * 32)
    keys = [signing.decode_secret(newer), signing.decode_secret(older)]
    sent_at = int(datetime.now(UTC).timestamp())
    headers = {
        "webhook-id": "e:s",
        "webhook-timestamp": str(sent_at),
        "webhook-signature": signing.sign(keys, "e:s", sent_at, b'{"a": 1.0}'),
    }
    assert headers["webhook-signature"].count("v1,") == 2
    assert headers["webhook-signature"].split(" ")[0] == signing.sign(keys[:1], "e:s", sent_at, b'{"a": 1.0}')
    for secret in (older, newer):
        assert standardwebhooks.Webhook(secret).verify(b'{"a": 1.0}', headers) == {"a": 1.0}


def test_nothing_is_signed_without_a_secret() -> None:
    with pytest.raises(ValueError, match="without a secret"):
        signing.sign([], "e:s", VECTOR_TIME, b"{}")


@pytest.mark.parametrize("size", [24, 25, 26, 32, 64])
def test_a_new_secret_reads_back(size: int) -> None:
    key = bytes(range(size))
    assert signing.decode_secret(signing.new_secret(key)) == key


@pytest.mark.parametrize("size", [0, 16, 23, 65, 200])
def test_a_secret_of_the_wrong_length_is_neither_made_nor_read(size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes.* 24 to 64"):
        signing.new_secret(bytes(size))
    with pytest.raises(ValueError, match=f"{size} bytes.* 24 to 64"):
        signing.decode_secret("whsec_" + b64encode(bytes(size)).decode())


ENCODED = b64encode(bytes(range(224, 256))).decode()
MISTAKES = {
    f"v1,whsec_{ENCODED}": "v1",
    "whsec_not base64!": "not base64",
    "whsec_" + urlsafe_b64encode(b"\xff" * 32).decode(): "URL-safe",
    "correct horse battery staple": "begin with whsec_",
    ENCODED: "begin with whsec_",
    "": "begin with whsec_",
    f"WHSEC_{ENCODED}": "begin with whsec_",
    f'"whsec_{ENCODED}"': "quotes",
    f"'whsec_{ENCODED}'": "quotes",
    f" whsec_{ENCODED}": "spaces",
    f"whsec_{ENCODED}\n": "spaces",
    f"whsec_{ENCODED.rstrip('=')}": "multiple of 4",
    f"whsec_{ENCODED}=": "multiple of 4|canonical",
    f"whsec_{ENCODED[:-2]}9=": "canonical",
    "whsec_" + "é" * 32: "not base64",
    "whsec_" + "\x00" * 32: "not base64",
    "whsec_" + "\ud800" * 32: "not base64",
    f"whsec_{ENCODED[:10]}\n{ENCODED[10:]}": "not base64",
}


@pytest.mark.parametrize(("text", "mistake"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_a_malformed_secret_is_refused_by_naming_the_mistake_and_not_the_secret(text: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake) as refused:
        signing.decode_secret(text)
    assert not text or text not in str(refused.value)
    assert ENCODED[:10] not in str(refused.value)
