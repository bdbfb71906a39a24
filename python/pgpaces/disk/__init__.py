"""Measurements of a disk: fio's profiles in a folder, and facts of the device under it.

The values are in analysis/disks.py. Knows no server, no store, no terminal.
"""
