"""The `tailrace` command: one module for each group of commands.

Stands on the core and the worker and may import both; nothing imports it.
"""
