"""The HTTP face of a running deployment: requests and reports as JSON, rows to receive and to publish, metrics, pages.

It runs in a process of its own beside the relays, as a client of the deployment: what it does for a request is what the
command line does (`headgate.client`, `headgate.service`). May import everything except `cli`.
"""
