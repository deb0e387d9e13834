"""Following sampled rows through every stage, with times: read from the logs, so that nothing on the way slows down."""
