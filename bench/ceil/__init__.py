"""The reference: about the least that a Python worker on psycopg can do with this claim design.

No retries, no leases, no fencing, no rescue of dead workers, no history. It is the ceiling that
ours is divided by, and never more than that. Batches are claimed by a HOT update, the scan starts
at the last key claimed, and workers are notified only while they say that they are idle.
"""
