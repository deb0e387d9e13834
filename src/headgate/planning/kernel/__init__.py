"""Compiled kernels on `Net`: values of QoS functions, tree changes, the drop fixed point, assignments."""
