"""Load by Python functions: application users in processes of their own.

load (a generators.together.RunningLoad: starts the processes, adds up what they tell), order (what
each is told), process (what runs in it), virtual_users (its users, in threads or as coroutines),
probe (how late it is), counter (the one schedule of an open load). Schedules and accounting are the
engine's own.
"""
