"""Schedules: when they fire, what applications declare, and what people do with them.

`times` and `plan` are pure, `declared` has the words of an application, `words` those of an administrator; the routine
`tailrace.maintenance.cron` fires.
"""
