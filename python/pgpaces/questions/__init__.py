"""Questions: which trials each needs, which answers it calls, and the sections it ends in.

sweep/     what the trials of an experiment, or some runs, say: the page and its report
run        what one trial says     pgbench   the same in the words of pgbench
capacity/  how much it holds       compare/  whether B is better than A, or a run than its baseline
trend/     since when it is another level    forecast/  what more load would do
why/       why transactions were late
bulk/      what a timed command did          servers, disk, costs, volume  parts of the others
"""
