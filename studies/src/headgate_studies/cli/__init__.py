"""Commands that this distribution adds to the `headgate` program, by the entry point group `headgate.commands`."""
