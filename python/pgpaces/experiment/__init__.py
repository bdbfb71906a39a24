"""The pipeline: plan, prepare, generate, observe, store. The only place where the stages meet.

request.py   what a trial is asked to be
single.py    one run as its options ask for it, typed or from Python
trial.py     one trial, from its plan to its answer in the store
preparation.py everything that one needs: data, settings, standbys that have it all, a pool
components.py  its component loads: scripts of one workload that go to one server
cell.py      one whose data and servers stand ready
costs.py     what the machine of a trial's server costs
monitors.py  what looks at the server beside the load
site.py      where the load goes: an external server, or one of ours
recorder.py  what keeps a trial's seconds
stops.py     how loads are ended from outside
listener.py  who hears what happens
sweep.py     an experiment: planned, run machine by machine, resumed
order.py     what is to be run, and the requests of its trials
queue.py     which trial of a machine is next: listed, or chosen as it goes
strategies.py  what trials are chosen for: a capacity, pairs, a budget of time
machine.py   the trials of one machine, one after the other
document.py  an experiment as it is stored
targets.py   databases and servers as they are stored and shown
capacity.py, pairs.py, time_budget.py  questions as people write them, made into experiments

Knows no terminal.
"""
