"""Benchmarks: Tailrace beside a reference worker, in one interleaved run on one server.

Run as ``python -m bench NAME``. Absolute numbers of different runs mean little, so every
result is a ratio taken within a round. `docs/performance.md` says what each name measures.
"""
