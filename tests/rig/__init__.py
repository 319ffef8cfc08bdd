"""The rig: real servers, real processes and a cuttable network for the tests.

Fixtures are found by every test through `tests/conftest.py`; `tests/README.md` lists them.
"""
