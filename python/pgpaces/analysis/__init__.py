"""Answers: pure functions of stored trials. No files, no clock, no global randomness."""
