"""What the vault promises: sealed secrets open with any configured key, and nothing of them shows."""

import pytest

from service.domain.errors import ConfigurationError
from service.store.vault import Unreadable, Vault, new_key

SECRET = b"a secret of the house"


def test_what_was_sealed_opens_again() -> None:
    vault = Vault([new_key()])
    assert vault.open(vault.seal(SECRET)) == SECRET


def test_a_sealed_secret_does_not_show_and_never_looks_the_same_twice() -> None:
    vault = Vault([new_key()])
    first, second = vault.seal(SECRET), vault.seal(SECRET)
    assert SECRET not in first
    assert first != second


def test_the_first_key_seals_and_every_key_opens() -> None:
    old, new = new_key(), new_key()
    sealed_before = Vault([old]).seal(SECRET)
    sealed_after = Vault([new, old]).seal(SECRET)
    assert Vault([new, old]).open(sealed_before) == SECRET
    assert Vault([new]).open(sealed_after) == SECRET


def test_without_the_right_key_a_secret_is_unreadable() -> None:
    sealed = Vault([new_key()]).seal(SECRET)
    with pytest.raises(Unreadable):
        Vault([new_key()]).open(sealed)


@pytest.mark.parametrize("damage", [b"", b"x", b"\x00" * 80, b"gAAAAA"])
def test_what_was_never_sealed_is_unreadable(damage: bytes) -> None:
    with pytest.raises(Unreadable):
        Vault([new_key()]).open(damage)


@pytest.mark.parametrize("position", range(3))
def test_a_bad_key_is_refused_by_its_place_in_the_list_and_is_not_repeated(position: int) -> None:
    keys = [new_key(), new_key(), new_key()]
    keys[position] = "this-is-no-key"
    with pytest.raises(ConfigurationError, match="TOCSIN_ENCRYPTION_KEYS") as refusal:
        Vault(keys)
    assert f"key {position + 1} " in refusal.value.detail
    assert "this-is-no-key" not in refusal.value.detail


def test_a_vault_without_keys_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="TOCSIN_ENCRYPTION_KEYS"):
        Vault([])


def test_a_vault_shows_no_key_when_it_is_printed() -> None:
    key = new_key()
    assert key not in repr(Vault([key]))
    assert key not in str(Vault([key]))
