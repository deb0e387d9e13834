"""The Python client: subscribe, receive Arrow batches with their coverage, publish rows, set context.

`Client` is for asyncio, `SyncClient` for plain code. Both need only the address of NATS.
"""

from headgate.client.buffer import Buffered, LocalBuffer
from headgate.client.client import Client
from headgate.client.connection import BusyError
from headgate.client.delivery import Delivery, Inbox
from headgate.client.errors import ClientError
from headgate.client.lineage_check import LossError
from headgate.client.member import GroupMember, MemberDelivery
from headgate.client.sender import Sender, Sent
from headgate.client.sync import SyncClient

__all__ = [
    "Buffered",
    "BusyError",
    "Client",
    "ClientError",
    "Delivery",
    "GroupMember",
    "Inbox",
    "LocalBuffer",
    "LossError",
    "MemberDelivery",
    "Sender",
    "Sent",
    "SyncClient",
]
