"""How much load a server holds: which trial comes next, and what all of them say. Pure.

goal: what is asked, what a trial found, what comes next. rule: what trials say, by formulas.
search: the next trial. answer: what is proved and what is not. words: sentences. plan: how long.
trials: from digests to points. worth: a load in queries, users and money. value: all of it, plain.
"""
