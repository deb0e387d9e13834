"""Many readers of a site from one reading of its inboxes: what came lately is kept in memory and served from there.

A reader stays what it is (`headgate.client.reader`): a machine that asks for messages. Here its questions are answered
from memory where that is as good as the log, and by the log where it is not. It may import what the client imports;
the HTTP faces sit on it.
"""
