"""Prepares the target: managed databases, their ownership and data, copies of them, and facts.

It never drops, truncates or overwrites what pgpaces does not own.
"""
