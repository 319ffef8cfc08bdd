"""The controller: JobQueue resources become running, healed, drained workers.

It reads resources and writes their children and their status; the work on jobs is the worker's, the rules are tailrace's.
"""
