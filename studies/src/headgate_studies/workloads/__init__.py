"""Made input of studies and benchmarks: classes and rows, overlays and trees, crowds on a grid, feeds on loopback.

The workloads of the papers, from seeds. Each module may import the package of `headgate` that it feeds.
"""
