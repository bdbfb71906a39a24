"""Sensors: monitors of the server and its machine while the load runs."""
