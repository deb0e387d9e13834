"""Studies: experiments declared as parameters, seeds and a pure function of one row, run on Spark, drawn and judged.

May import everything except `cli`, `service` and `testing`.
"""
