"""Where the `headgate` program starts. It imports nothing heavy itself, so that Ctrl-C is quiet from the beginning."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it at once, and without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from headgate.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
