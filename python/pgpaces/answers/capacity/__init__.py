"""How much load a server holds: which trial comes next, and what all of them say. Pure.

goal: the goal, a trial as a point, the next load. rule: verdicts and fits, by formulas. center:
where trials are placed. search: the next trial. answer: what is proved. words: sentences. plan: the
duration. trials: from digests to points. worth: a load in queries, users and money. value: all of
it as plain values.
"""
