"""A simulated world in virtual time: logs that behave as JetStream does, links, clocks, and what goes wrong with them.

Nothing here sleeps, reads a clock or starts a thread: time comes in as an argument and randomness from a generator that
the caller seeds. `headgate_studies.testing.log_contract` proves the logs against a real nats-server.
"""
