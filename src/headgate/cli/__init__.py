"""The command line: one module a command, collected in `app.COMMANDS`. Nothing imports this package."""
