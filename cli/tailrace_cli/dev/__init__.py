"""`tailrace dev`: JobQueue files run on this machine, without a cluster.

`command` is the word, `plan` reads the files, `place` finds or starts the database, `session` drives one `fleet` of worker
processes per queue by the demand that the statistics publish, `board` shows it.
"""

from tailrace_cli.dev.command import add_to

__all__ = ["add_to"]
