"""Virtual time: the server, its logs, the links and the processes of a deployment, without a network and a clock.

The machines of the protocol (`headgate.protocol.kernel`) run here exactly as they run on a real connection. `headgate
replay` runs recorded data through them, and the simulator of `headgate-studies` adds faults. It imports `protocol` and
`wire` only.
"""
