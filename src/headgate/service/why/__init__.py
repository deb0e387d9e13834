"""What became of a row: found in the logs of its stream, judged by a subscription's filter, followed along its path."""
