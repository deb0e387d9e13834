"""What tests and maintainers use: contract suites, chaos runs and the generator of `docs/reference`.

May import everything; nothing imports it.
"""
