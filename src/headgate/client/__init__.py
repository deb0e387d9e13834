"""The Python client: subscribe, receive Arrow batches with their coverage, publish rows, set context.

`Client` is for asyncio, `SyncClient` for plain code. Both need only the address of NATS.
"""

from headgate.client.buffer import Buffered, LocalBuffer
from headgate.client.client import BusyError, Client
from headgate.client.delivery import Delivery, Inbox
from headgate.client.errors import ClientError
from headgate.client.lineage_check import LossError
from headgate.client.sender import Sender, Sent
from headgate.client.sync import SyncClient

__all__ = [
    "Buffered",
    "BusyError",
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
