"""Errors, units, and the record of a second: what every other room uses."""
