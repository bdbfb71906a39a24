"""The results of a timed command, in words and as bars."""
