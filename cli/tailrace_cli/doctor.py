"""`tailrace doctor`: is this database fit, and what to do where it is not."""

from __future__ import annotations

import dataclasses

import click

from tailrace.db import Connection, DatabaseError
from tailrace.errors import DatabaseUnavailable, TailraceError
from tailrace_cli.checks import CHECKS, Finding, Patient
from tailrace_cli.failures import ExitStatus, scrubbed
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.output import Column, printable

__all__ = ["add_to"]

_COLUMNS = (Column("check"), Column("status"), Column("found"), Column("remedy"))


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(group, "doctor", example="tailrace doctor\ntailrace doctor -o json")
    @pass_invocation
    def doctor(invocation: Invocation) -> int:
        """Look at the database and say what to do.

        Checks connection, a pooler in between, server version, schema, privileges, clock, oldest transaction, connections,
        roles, foreign indexes, autovacuum and maintenance. Exit status 1 if one fails, 3 if the database cannot be reached.
        """
        database = invocation.database()
        try:
            conn = invocation.connect(database, checked=False)
        except DatabaseUnavailable as error:
            found = scrubbed(str(error).removesuffix(f" ({error.hint})"))
            _print(invocation, [Finding("connection", "fail", found, (error.hint,) if error.hint else ())])
            return ExitStatus.UNREACHABLE
        with conn:
            findings = [Finding("connection", "ok", database.address), *_examine(conn, Patient(conn, database))]
        _print(invocation, findings)
        return ExitStatus.FAILED if any(finding.status == "fail" for finding in findings) else ExitStatus.DONE


def _examine(conn: Connection, patient: Patient) -> list[Finding]:
    findings: list[Finding] = []
    for check, needs_schema in CHECKS:
        if needs_schema and any(finding.check == "schema" and finding.status == "fail" for finding in findings):
            continue
        name = check.__name__.replace("_", " ")
        try:
            found = check(patient)
        except DatabaseUnavailable:
            raise
        except (TailraceError, DatabaseError) as error:
            text = scrubbed(" ".join(str(error).split()))
            findings.append(Finding(name, "warn", f"could not look: {text}", ("Run it as the owner of the schema",)))
            if conn.closed:
                raise
        else:
            findings += [found] if found is not None else []
    return findings


def _print(invocation: Invocation, findings: list[Finding]) -> None:
    if invocation.form not in ("table", "wide"):
        invocation.show_list([dataclasses.asdict(finding) for finding in findings], columns=_COLUMNS, key="check", empty="")
        return
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        if invocation.quiet and finding.status == "ok":
            continue
        click.echo(f"{finding.status:<4}  {finding.check:<{width}}  {printable(finding.found)}")
        for line in finding.remedy:
            click.echo(f"{'':<6}{'':<{width}}  {printable(line)}")
