"""The pipeline: plan, prepare, generate, observe, store. The only place where the stages meet.

request.py   the request of a trial
single.py    the request of one run, from its options, typed or from Python
trial.py     one trial, from its plan to its answer in the store
preparation.py everything that it needs: data, settings, up-to-date standbys, a pool
components.py  its component loads: scripts of one workload that go to one server
cell.py      a trial whose data and servers stand ready
monitors.py  monitors of the server during the load
site.py      where the load goes: an external server, or a managed one
recorder.py  stores a trial's seconds
stops.py     how loads are ended from outside
listener.py  receives events of the pipeline
sweep.py     an experiment: planned, run machine by machine, resumed
order.py     an order to run an experiment, and the requests of its trials
queue.py     which trial of a machine is next: listed, or chosen from earlier results
strategies.py  goals of adaptive experiments: a capacity, pairs, a time budget
machine.py   the trials of one machine, in sequence
document.py  an experiment as it is stored
targets.py   databases and servers as they are stored and shown
capacity.py, pairs.py, time_budget.py  experiments from the options of a question

Knows no terminal.
"""
