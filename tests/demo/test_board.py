"""The demo's display: plain lines where there is no terminal, no more than one a second, and the ledger in words."""

from __future__ import annotations

import io

from rich.console import Console

from examples.webhooks.board import Board, ledger_rows
from examples.webhooks.ledger import Ledger

LEDGER = Ledger(enqueued=2000, delivered=2000, retried=200, recovered=40, dead=20, requeued=20, lost=0, repeated=3, problems=())


def test_plain_lines_come_once_a_second():
    out, now = io.StringIO(), [100.0]
    with Board(Console(file=out, width=100), clock=lambda: now[0]) as board:
        for _ in range(5):
            board.move("delivered", 10, 2000, "7 left")
            now[0] += 0.3
        board.say("kills a worker")
        board.move("delivered", 1500, 2000)
    assert out.getvalue().splitlines() == [
        "  0.0 s    delivered 10 of 2,000 - 7 left",
        "  1.2 s    delivered 10 of 2,000 - 7 left",
        "  1.5 s  kills a worker",
        "  1.5 s    delivered 1,500 of 2,000",
    ]


def test_a_terminal_gets_one_line_that_moves_and_goes_away():
    out = io.StringIO()
    with Board(Console(file=out, width=100, force_terminal=True, color_system=None)) as board:
        board.move("delivered", 10, 2000, "7 left")
        board.say("kills a worker")
    assert "kills a worker" in out.getvalue()
    assert "\x1b[?25h" in out.getvalue()  # the cursor is back


def test_the_ledger_is_printed_with_each_figure():
    out = io.StringIO()
    with Board(Console(file=out, width=140)) as board:
        board.print_ledger(ledger_rows(LEDGER, abandoned=20, seconds=23.45))
    text = out.getvalue()
    figures = {"enqueued": "2,000", "lost": "0", "recovered": "40", "delivered twice": "3", "seconds": "23.4"}
    for name, figure in figures.items():
        assert any(line.strip().startswith(name) and figure in line.split() for line in text.splitlines()), text
    assert "killed before it could say so" in text


def test_no_second_delivery_is_explained_too():
    rows = {name: why for name, _, why in ledger_rows(LEDGER, abandoned=0, seconds=1.0)}
    assert "accepted, but" in rows["delivered twice"]
    none = {name: why for name, _, why in ledger_rows(_without_repeats(), abandoned=0, seconds=1.0)}
    assert none["delivered twice"] == "the killed worker had reported all that it delivered"


def _without_repeats() -> Ledger:
    return Ledger(enqueued=1, delivered=1, retried=0, recovered=1, dead=0, requeued=0, lost=0, repeated=0, problems=())
