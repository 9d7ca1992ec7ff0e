"""Keys: for their owner alone, and clear words where they are missing, locked or others'."""

from __future__ import annotations

from base64 import b64decode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from steersman.errors import InputError, SigningError
from steersman.registry.keys import Keys
from tests.registry.conftest import PASSPHRASE


@pytest.fixture
def keys(tmp_path):
    keys = Keys(tmp_path / "keys")
    keys.create(PASSPHRASE)
    return keys


def test_root_is_encrypted_and_all_are_for_their_owner_alone(keys):
    assert (keys.folder / "root.pem").read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY")
    modes = {path.name: path.stat().st_mode & 0o777 for path in keys.folder.iterdir()}
    assert modes == dict.fromkeys(
        ["root.pem", "targets.pem", "snapshot.pem", "timestamp.pem"], 0o600
    )
    assert keys.folder.stat().st_mode & 0o777 == 0o700


def test_making_keys_again_keeps_them(keys):
    before = {path: path.read_bytes() for path in keys.folder.iterdir()}
    keys.create(PASSPHRASE)
    assert {path: path.read_bytes() for path in keys.folder.iterdir()} == before


def test_a_wrong_passphrase_is_told(keys):
    with pytest.raises(SigningError, match=r"root\.pem cannot be opened: its passphrase is wrong"):
        keys.root_signers("another passphrase")
    with pytest.raises(SigningError, match="its passphrase is wrong"):
        keys.create("another passphrase")


def test_a_short_passphrase_is_refused(tmp_path):
    with pytest.raises(InputError, match="3 characters; the minimum is 8"):
        Keys(tmp_path / "none").create("abc")
    assert not (tmp_path / "none" / "root.pem").exists()


def test_the_number_of_root_keys_has_limits(tmp_path):
    with pytest.raises(InputError, match="allowed: 1 to 16"):
        Keys(tmp_path).create(PASSPHRASE, roots=0)


def test_an_online_key_that_is_open_to_others_is_refused(keys):
    keys.path_of("targets").chmod(0o644)
    with pytest.raises(SigningError, match=r"readable by others \(mode 644\); run chmod 600"):
        keys.signer("targets")


def test_missing_and_damaged_keys_are_told(keys):
    keys.path_of("targets").write_bytes(b"-----BEGIN nonsense")
    with pytest.raises(SigningError, match="it is damaged"):
        keys.signer("targets")
    keys.path_of("snapshot").unlink()
    with pytest.raises(SigningError, match="cannot be read: No such file"):
        keys.signer("snapshot")


def test_the_root_key_may_be_elsewhere(keys, tmp_path):
    (tmp_path / "stick").mkdir()
    (keys.folder / "root.pem").rename(tmp_path / "stick" / "root.pem")
    with pytest.raises(SigningError, match=r"root key .*not found"):
        keys.root_signers(PASSPHRASE)
    assert len(Keys(keys.folder, root_folder=tmp_path / "stick").root_signers(PASSPHRASE)) == 1


def test_a_key_of_another_kind_is_refused(keys):
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    keys.path_of("targets").write_bytes(pem)
    with pytest.raises(SigningError, match="not an Ed25519 key"):
        keys.signer("targets")


def test_a_root_key_takes_many_rounds_to_open(tmp_path, monkeypatch, rounds):
    """What ``cryptography`` writes by itself takes 2,048, as nothing against who has the file."""
    monkeypatch.setattr("steersman.registry.keys.ROUNDS", rounds)  # all other tests take few
    keys = Keys(tmp_path / "keys")
    keys.create(PASSPHRASE)
    assert rounds == 600_000
    pem = (keys.folder / "root.pem").read_text().splitlines()[1:-1]
    written = b64decode("".join(pem))
    assert b"\x02\x03" + rounds.to_bytes(3, "big") in written  # DER's integer of three bytes
    assert len(keys.root_signers(PASSPHRASE)) == 1


def test_a_root_key_of_an_earlier_release_is_opened(keys):
    path = keys.folder / "root.pem"
    before = keys.root_signers(PASSPHRASE)[0].public_key.keyid
    key = serialization.load_pem_private_key(path.read_bytes(), PASSPHRASE.encode())
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSPHRASE.encode()),
        )
    )
    assert keys.root_signers(PASSPHRASE)[0].public_key.keyid == before
