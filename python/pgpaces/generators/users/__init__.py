"""Load by Python functions: application users in processes of their own.

load (a generators.together.Load: starts the processes, adds up what they tell), process (what runs in
each of them), seats (the users, in threads or as coroutines), counter (the one schedule of an open
load). Schedules and accounting are the engine's own.
"""
