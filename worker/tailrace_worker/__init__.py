"""The worker: one process that claims jobs and runs them.

Built on the core library, which knows no process; the command line starts it.
"""
