"""The pure core: values and events, the vocabulary of stores, the elector, schedules and cron. It imports nothing of
ours, reads no clock and does no I/O: `now` goes in, values come out.

README.md, beside this file, gives the reading order of the core, the runtime and the system.
"""
