"""Results and running loads in a browser: a process of its own that reads the store.

It needs the extra `pgpaces[web]`. Only `listening.py` opens ports.
"""
