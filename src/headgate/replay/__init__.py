"""Recorded data through a whole deployment: matched by Spark as live data is, then carried by relays in virtual time.

It answers what each subscriber would have received, when, and what would have been given up, and compares plans and
policies on the same rows. It may import everything that a running deployment is made of, but not the command line.
"""
