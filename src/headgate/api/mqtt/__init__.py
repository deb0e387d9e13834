"""Rows for devices that speak MQTT, and rows from them, through the listener of the embedded NATS server.

A client of the deployment and of the server's account of devices; it has no state of its own.
"""
