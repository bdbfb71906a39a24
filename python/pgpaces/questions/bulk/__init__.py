"""What a timed command did, in words and as bars."""
