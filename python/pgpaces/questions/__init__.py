"""Questions: which trials each needs, which answers it calls, and the sections it ends in.

sweep/     the page and the report of the trials of an experiment, or of runs
run        the answer of one trial     pgbench   the same in the words of pgbench
capacity/  the highest load that meets a goal
compare/   whether B is better than A, or a run than its baseline
trend      since when runs have changed their level     forecast  throughput under more load
why/       why transactions were late
bulk/      the results of a timed command     servers, disk, costs, volume  parts of the others
work, parts  what trials do that is no transaction
"""
