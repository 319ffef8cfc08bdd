"""Connection strings out of Secrets: what is allowed passes, all else is named, and nothing secret is repeated."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tailrace.db.allowed import KEYWORDS, Target, parse_target
from tailrace.errors import InvalidDSN, InvalidOption
from tailrace.names.conditions import Reason

MARKER = "mark-of-the-secret"


def parse(text: str, **more: object) -> Target:
    return parse_target(text.encode(), schema="tailrace", **more)  # type: ignore[arg-type]


def refused(text: str, **more: object) -> InvalidDSN:
    with pytest.raises(InvalidDSN) as caught:
        parse(text, **more)
    assert MARKER not in str(caught.value)
    assert caught.value.reason is Reason.INVALID_DSN
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://app:p%40ss@db.team-a.svc:6432/shop?sslmode=require",
        "postgres://app:p%40ss@db.team-a.svc:6432/shop?sslmode=require\n",
        "host=db.team-a.svc port=6432 dbname=shop user=app password=p@ss sslmode=require",
    ],
)
def test_a_url_and_keywords_are_read(text: str) -> None:
    target = parse(text)
    assert target.address == "db.team-a.svc:6432/shop"
    assert target.key == ("db.team-a.svc", "6432", "shop", "app")
    assert target.place == ("db.team-a.svc", "6432", "shop", "tailrace")
    given = conninfo_to_dict(target.dsn.get_secret_value())
    assert (given["password"], given["sslmode"], given["connect_timeout"]) == ("p@ss", "require", "5")


def test_nothing_secret_is_shown() -> None:
    """l2."""
    target = parse(f"postgresql://app:{MARKER}@db/shop")
    assert MARKER not in f"{target!r} {target} {target.address} {target.key}"


def test_what_libpq_would_take_from_our_files_is_off() -> None:
    """l1: password files, client certificates, tickets."""
    given = conninfo_to_dict(parse("postgresql://app@db/shop").dsn.get_secret_value())
    assert (given["passfile"], given["sslcertmode"], given["gssencmode"]) == ("/dev/null/none", "disable", "disable")


def test_gaps_are_filled_by_us_not_by_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATABASE", "other")
    assert parse("postgresql://app@db").key == ("db", "5432", "app", "app")


def test_several_hosts_are_one_place() -> None:
    target = parse("postgresql://app@a:1,b:2/shop?target_session_attrs=primary")
    assert (target.host, target.port, target.address) == ("a,b", "1,2", "a:1,b:2/shop")
    assert parse("postgresql://app@[fd00::1]:5/shop").address == "[fd00::1]:5/shop"


OTHERS = [
    *("sslkey", "sslcert", "sslpassword", "sslcrl", "sslcrldir", "passfile", "service", "hostaddr", "krbsrvname", "gsslib"),
    *("requirepeer", "application_name", "keepalives", "client_encoding", "replication", "channel_binding", "sslcertmode"),
]


@pytest.mark.parametrize("keyword", OTHERS)
def test_other_keywords_are_refused_by_name(keyword: str) -> None:
    """l1: libpq follows some of them into files and services of the controller."""
    assert keyword not in KEYWORDS
    error = refused(f"host=db user=app password={MARKER} {keyword}=1")
    assert error.field == keyword
    assert "is not allowed" in str(error)


def test_a_mistyped_keyword_is_named_and_a_piece_of_a_password_is_not() -> None:
    assert refused("host=db user=app pasword=1").field == "pasword"
    error = refused(f"host=db user=app password=x {MARKER.replace('-', '')}=1")
    assert "markof" not in str(error)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (f"user=app password={MARKER}", "host"),
        (f"postgresql://app:{MARKER}@/shop", "host"),
        (f"postgresql://app:{MARKER}@%2Fvar%2Frun/shop", "host"),
        ("host=@abstract user=app", "host"),
        ("host='a b' user=app", "host"),
        ("host=a,,b user=app", "host"),
        ("postgresql://db/shop", "user"),
        ("host=db user=app port=0", "port"),
        ("host=db user=app port=70000", "port"),
        ("host=db user=app port=abc", "port"),
        ("host=a,b,c user=app port=1,2", "port"),
        ("host=db user=app sslmode=sometimes", "sslmode"),
        ("host=db user=app target_session_attrs=standby", "target_session_attrs"),
        ("host=db user=app connect_timeout=1e9", "connect_timeout"),
        ("host=db user=app options='-c role=postgres'", "options"),
        ("host=db user=app options='-c search_path=a -c role=postgres'", "options"),
        (r"host=db user=app options='-c search_path=a\\ -c\\ role=postgres'", "options"),
        (r"host=db user=app options='-csearch_path=\'a -crole=postgres\''", "options"),
        ("host=db user=app options=-c", "options"),
        ("host=db user=app sslrootcert=/etc/passwd", "sslrootcert"),
        ("host=db user=app sslrootcert=ca.crt", "sslrootcert"),
        ("host=db user=app sslrootcert=../ca.crt", "sslrootcert"),
    ],
)
def test_wrong_values_are_refused_by_keyword(text: str, field: str) -> None:
    assert refused(text).field == field


@pytest.mark.parametrize(
    "text", ["", "  \n", MARKER, f"postgresql+psycopg://app:{MARKER}@db/shop", f"password={MARKER} x", "x" * 9000]
)
def test_what_is_no_connection_string_is_refused_without_repeating_it(text: str) -> None:
    refused(text)


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"host=db user=a\x00pp"])
def test_bytes_that_are_no_text_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidOption):
        parse_target(raw, schema="tailrace")


@pytest.mark.parametrize("options", ["-csearch_path=a,b", "-c search_path=a", "--search_path=a"])
def test_options_may_set_the_search_path(options: str) -> None:
    target = parse_target(f"host=db user=app options='{options}'".encode(), schema="tailrace")
    assert conninfo_to_dict(target.dsn.get_secret_value())["options"] == options


def test_a_schema_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(InvalidDSN, match="schemaName"):
        parse_target(b"host=db user=app", schema="pg_tailrace")


def test_a_database_named_like_keywords_stays_a_name(dsn: str) -> None:
    """l1: libpq looks into some database names for more keywords, not into this one."""
    place = conninfo_to_dict(dsn)
    text = (
        f"host={place['host']} port={place['port']} user={place['user']} password={place['password']} dbname='sslkey=/x host=h'"
    )
    with pytest.raises(psycopg.OperationalError, match='database "sslkey=/x host=h" does not exist'):
        psycopg.connect(parse(text).dsn.get_secret_value())


# ---- hosts -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("host", "patterns"),
    [
        ("db.team-a.svc", ["db.team-a.svc"]),
        ("DB.team-a.svc.", ["db.team-a.svc"]),
        ("db.team-a.svc", ["other", "*.svc"]),
        ("anything", []),
        ("a.svc,b.svc", ["*.svc"]),
    ],
)
def test_allowed_hosts_pass(host: str, patterns: list[str]) -> None:
    assert parse(f"host={host} user=app", allowed_hosts=patterns).host == host


@pytest.mark.parametrize(
    ("host", "patterns"),
    [("db.evil", ["db"]), ("svc", ["*.svc"]), ("evilsvc", ["*.svc"]), ("a.svc,evil", ["*.svc"]), ("169.254.169.254", ["*.svc"])],
)
def test_other_hosts_are_refused(host: str, patterns: list[str]) -> None:
    error = refused(f"host={host} user=app", allowed_hosts=patterns)
    assert error.field == "host"
    assert "allowedDatabaseHosts" in str(error)


# ---- certificates ----------------------------------------------------------------------------------------------------
def test_a_root_certificate_is_a_key_of_the_secret() -> None:
    text = "host=db user=app sslmode=verify-full sslrootcert=ca.crt"
    target = parse(text, keys={"uri": text.encode(), "ca.crt": b"PEM"})
    assert target.root_certificate == b"PEM"
    assert "sslrootcert" not in conninfo_to_dict(target.dsn.get_secret_value())
    assert parse("host=db user=app sslrootcert=system").root_certificate is None


def test_two_secrets_are_equal_only_with_the_same_password_and_certificate() -> None:
    text = "host=db user=app password={} sslrootcert=ca.crt"
    one, same, other, signed = (
        parse(text.format(word), keys={"ca.crt": pem}) for word, pem in (("a", b"P"), ("a", b"P"), ("b", b"P"), ("a", b"Q"))
    )
    assert one == same
    assert len({one, same, other, signed}) == 3
    assert one.key == other.key == signed.key
