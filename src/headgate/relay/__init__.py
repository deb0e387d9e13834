"""The overlay: one relay per site takes blocks in, splits them over its outputs and accounts for what it gives up.

`core` and what it uses (`routes`, `output`, `split`) are I/O-free: blocks and times in, decisions out. `node` is the
adapter to NATS. Imports wire, catalog and fabric, and the engines below them.
"""
