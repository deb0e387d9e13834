"""The Python client: subscribe, receive Arrow batches with their coverage, publish rows, set context.

`Client` is for asyncio, `SyncClient` for plain code. Both need only the address of NATS.
"""

from headgate.client.buffer import Buffered, LocalBuffer
from headgate.client.client import Client
from headgate.client.delivery import ClientError, Delivery, Inbox
from headgate.client.past import LossError
from headgate.client.sender import Sender, Sent
from headgate.client.sync import SyncClient

__all__ = [
    "Buffered",
    "Client",
    "ClientError",
    "Delivery",
    "Inbox",
    "LocalBuffer",
    "LossError",
    "Sender",
    "Sent",
    "SyncClient",
]
