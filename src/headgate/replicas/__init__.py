"""Sites that serve parts of gridded streams: the engine of `headgate.grid.serving` on real connections and real rows.

May import `client`, `relay`, `fabric` and what stands above them.
"""
