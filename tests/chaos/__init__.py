"""The fault suite: real processes and servers under load, broken in every way that we know, and measured.

`make chaos` runs it at full length and writes the table of docs/explanation/reliability.md; `make test` runs it with short
leases. What each fault means for single jobs is tested in tests/worker/test_faults_*.py; here a whole crew must come back.
"""
