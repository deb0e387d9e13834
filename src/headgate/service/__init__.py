"""The running deployment: the live loop behind `headgate up`, its control requests, ledger, status and demo.

May import everything except `cli`, `studies`, `bench` and `testing`.
"""
