"""A root certificate out of the Secret: the controller and the worker verify the server with it, on a real TLS server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tailrace.db import Database
from tailrace.errors import DatabaseUnavailable
from tailrace_controller.databases import parse_target
from tests.operator.databases import databases
from tests.rig.kube import pki
from tests.rig.servers import RigDatabase, own_server
from tests.rig.waiting import eventually


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A server's certificate for 127.0.0.1, the authority that signed it, and another authority."""
    pki.write(tmp_path / "pki")
    return tmp_path / "pki"


@pytest.fixture
def encrypted(certificates: Path) -> Iterator[RigDatabase]:
    """A database on a server that speaks TLS: Debian's, since the embedded one is built without."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not binaries:
        pytest.skip("no PostgreSQL with TLS on this machine: none below /usr/lib/postgresql")
    for server in own_server(str(binaries[-1].parent)):
        yield _with_tls(server.migrated(), certificates)


def _with_tls(database: RigDatabase, certificates: Path) -> RigDatabase:
    with database.connect() as conn:
        for name in ("server.crt", "server.key"):
            # The server writes its own file, so that its account owns it, and nobody else may read it.
            command = sql.Literal(f"umask 077; cat > {name}")
            text = (certificates / name).read_text().strip()
            conn.execute(sql.SQL("copy (select string_to_table({}, E'\\n')) to program {}").format(sql.Literal(text), command))
        for setting, value in (("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key"), ("ssl", "on")):
            conn.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(setting), sql.Literal(value)))
        conn.execute("select pg_reload_conf()")
    eventually(lambda: database.value("show ssl") == "on", what="TLS")
    return database


def secret(database: RigDatabase, certificates: Path, authority: str) -> dict[str, bytes]:
    """A Secret whose connection string names the authority by a key."""
    place = conninfo_to_dict(database.dsn)
    words = {name: place[name] for name in ("host", "port", "dbname", "user", "password") if place.get(name)}
    text = " ".join(f"{name}={value}" for name, value in words.items())
    uri = f"{text} sslmode=verify-full sslrootcert=ca.crt".encode()
    return {"uri": uri, "ca.crt": (certificates / f"{authority}.crt").read_bytes()}


async def test_the_controller_verifies_with_the_secrets_certificate(encrypted: RigDatabase, certificates: Path) -> None:
    right, wrong = (secret(encrypted, certificates, name) for name in ("ca", "front-proxy-ca"))
    async with databases() as them:
        here = them.at(parse_target(right["uri"], schema="tailrace", keys=right))
        assert (await here.look()).installation_id
        assert encrypted.value(
            "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where application_name like 'tailrace c%'"
        )
        with pytest.raises(DatabaseUnavailable, match="certificate verify failed"):
            await them.at(parse_target(wrong["uri"], schema="tailrace", keys=wrong)).look()
        assert (await here.look()).installation_id


def test_the_worker_verifies_with_the_file_beside_its_connection_string(
    encrypted: RigDatabase, certificates: Path, tmp_path: Path
) -> None:
    for authority, fits in (("ca", True), ("front-proxy-ca", False)):
        folder = tmp_path / authority
        folder.mkdir()
        for name, content in secret(encrypted, certificates, authority).items():
            (folder / name).write_bytes(content)
        place = Database(url_file=folder / "uri")
        if fits:
            with place.connect() as conn:
                assert conn.info.get_parameters()["sslrootcert"] == str(folder / "ca.crt")
        else:
            with pytest.raises(DatabaseUnavailable, match="certificate verify failed"):
                place.connect()
