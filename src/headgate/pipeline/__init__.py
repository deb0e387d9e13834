"""The Spark job of a stream: sources, validation, matching, staging and commit, as DataFrame -> DataFrame functions.

May import `model` to `fabric`. Nothing here imports Spark before a session, a source or a query is asked for, so that
the generators and the pure parts can be used without it.
"""
