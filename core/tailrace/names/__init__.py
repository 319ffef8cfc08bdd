"""Names that others rely on, each declared once: metrics, log events, conditions, event reasons, labels, annotations.

Dashboards, alerts and people search for them, so the modules here are the only place where they are spelled.
"""
