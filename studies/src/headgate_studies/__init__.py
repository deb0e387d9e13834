"""The laboratory of Headgate: studies, benchmarks, simulators and campaigns that the product does not need to run.

A distribution of its own (`headgate-studies`). It may import everything of `headgate`; nothing in `headgate` imports
it. The `headgate` program finds its commands by the entry point group `headgate.commands`.
"""
