"""Load by Python functions: application users in separate processes.

Schedules and accounting are the engine's.
"""
