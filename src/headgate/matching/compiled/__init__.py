"""The compiled index: flat arrays and numba kernels, exact for every type that has keys. Imports numba."""
