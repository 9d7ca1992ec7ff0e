"""External server that requires TLS: everything works or gives a clear error."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from steersman.db.backup import backup, restore
from steersman.db.declarations import declare
from steersman.db.migrate import migrate
from steersman.db.tenants import create_tenant, list_tenants
from steersman.errors import StoreError
from steersman.platform.postgres.database import Database
from steersman.platform.postgres.pipeline import Pipeline
from tests.db.test_points import DOCUMENT

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
PASSWORD = "p@ss/word"  # noqa: S105 (of a server that lives as long as this test)


def certificate(folder, name):
    """Write a self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / f"{name}.key").write_bytes(key.private_bytes(*form, serialization.NoEncryption()))
    (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").chmod(0o600)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return folder and port of a server that rejects connections without TLS."""
    if not (PROGRAMS / "initdb").exists():
        if os.environ.get("CI") == "true":
            pytest.fail("no PostgreSQL 15 of Debian; `tools/postgres-15` installs it")
        pytest.skip("no PostgreSQL 15 of Debian; `tools/postgres-15` installs it")
    home = Path(tempfile.mkdtemp(prefix="steersman-tls-"))
    data = home / "data"
    data.mkdir()
    for name in ("server", "other"):
        certificate(home, name)
    (home / "password").write_text(PASSWORD)
    user = {}
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        for path in (home, data, *home.glob("server.*"), home / "password"):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program, *arguments):
        command = [PROGRAMS / program, "-D", data, *arguments]
        with (home / "said").open("ab") as said:
            subprocess.run(command, check=True, cwd="/", stdout=said, stderr=said, **user)

    run("initdb", "-A", "scram-sha-256", f"--pwfile={home / 'password'}", "-U", "boss")
    (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
    ssl = f"-c ssl=on -c ssl_cert_file={home}/server.crt -c ssl_key_file={home}/server.key"
    settings = f"-c port={port} -k '' -c listen_addresses=127.0.0.1 -c fsync=off {ssl}"
    run("pg_ctl", "-w", "-l", str(home / "log"), "-o", settings, "start")
    yield home, port
    run("pg_ctl", "-w", "-m", "immediate", "stop")
    shutil.rmtree(home, ignore_errors=True)


def url(server, query):
    home, port = server
    start = f"postgresql://boss:{quote(PASSWORD, safe='')}@localhost:{port}/postgres?"
    return start + query.format(home=home)


VERIFIED = "sslmode=verify-full&sslrootcert={home}/server.crt"


@pytest.mark.slow
async def test_all_goes_over_tls_and_a_backup_comes_back(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    database = Database(url(server, VERIFIED))
    await migrate(database)
    tenant = await create_tenant(database, "acme", actor="test")
    await declare(database, tenant.id, DOCUMENT, actor="test")
    connection = await database.connect(None)
    query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    encrypted = await connection.fetchval(query)
    await connection.close()
    assert encrypted is True
    made = await backup(database, tmp_path / "backup")
    assert made.tables > 10
    with pytest.raises(StoreError, match="--replace"):
        await restore(database, tmp_path / "backup")
    await restore(database, tmp_path / "backup", replace=True)
    assert [one.name for one in await list_tenants(database)] == ["acme"]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_pipeline_goes_over_tls_on_either_event_loop(server, run) -> None:
    database = Database(url(server, VERIFIED))

    async def ask():
        await migrate(database)
        pipeline = await Pipeline.open(database, "SELECT repeat('x', $1::int4)", row_type="event")
        sizes = (1, 1_000_000, 0, 20_000)
        answers = await asyncio.gather(*(pipeline.ask([size.to_bytes(4)]) for size in sizes))
        await pipeline.close()
        assert [len(rows[0][0]) for rows in answers] == list(sizes)

    run(ask())


@pytest.mark.parametrize(
    "query", ["sslmode=verify-full&sslrootcert={home}/other.crt", "sslmode=disable"]
)
async def test_who_cannot_be_verified_or_does_not_encrypt_gets_nothing(server, query) -> None:
    with pytest.raises(StoreError, match="check DATABASE_URL"):
        await Database(url(server, query)).connect(None)


async def test_without_programs_that_encrypt_a_backup_says_what_to_install(
    server, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    database = Database(url(server, VERIFIED))
    with pytest.raises(StoreError, match="postgresql-client"):
        await backup(database, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
