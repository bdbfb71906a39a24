"""Load by Python functions: application users in separate processes.

load (a generators.composite.RunningLoad: starts the processes, adds up their seconds), order (of a
process), process (its main program), virtual_users (its users, in threads or as coroutines), probe
(how late it is), counter (the one schedule of an open load). Schedules and accounting are the
engine's.
"""
