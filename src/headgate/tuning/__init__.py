"""Overlay tuning: objectives and constraints in the operator's words, and trees that improve by local steps (XPORT).

`language` reads objectives, `evaluate` prices a tree from scratch, `states` and `benefit` price a transformation from
the state a unit holds, `transformations` lists what can be done to a unit, `search` improves a tree, `protocol` does
the same with every site on its own in virtual time, and `steps` turns a change into moves that lose no row. Imports
`model`, `filters`, `planning` and NumPy; no network, no clock, no module-level state.
"""
