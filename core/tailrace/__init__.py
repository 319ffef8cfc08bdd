"""Tailrace: a job queue in PostgreSQL.

The public names of the library, each re-exported once; the modules below hold the code.
"""
