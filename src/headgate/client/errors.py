"""What a user of the client can cause."""

from headgate.errors import HeadgateError


class ClientError(HeadgateError):
    """Something that a user of the client can cause."""
