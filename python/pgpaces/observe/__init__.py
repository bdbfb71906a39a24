"""Sensors: what is seen of the server while the load runs, beside the load's own numbers."""
