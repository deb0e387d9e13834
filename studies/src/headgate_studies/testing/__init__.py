"""What tests and maintainers use: contract suites, a simulated world, chaos runs and the generator of `docs/reference`.

May import everything; nothing imports it.
"""
