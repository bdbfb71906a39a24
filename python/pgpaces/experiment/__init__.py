"""The pipeline: plan, prepare, generate, observe, store. The only place where the stages meet.

trial.py     one trial, from its plan to its answer in the store
site.py      where the load goes: somebody's server, or one of ours
keeper.py    what keeps a trial's seconds
listener.py  who hears what happens

Knows no terminal.
"""

from pgpaces.experiment.keeper import keep
from pgpaces.experiment.listener import Listener
from pgpaces.experiment.site import Site, site
from pgpaces.experiment.trial import OnStoreError, Outcome, Request, choose, run

__all__ = [
    "Listener",
    "OnStoreError",
    "Outcome",
    "Request",
    "Site",
    "choose",
    "keep",
    "run",
    "site",
]
