"""Measurements of a disk: fio's profiles in a folder, and facts of the device under it.

device.py   file system, device and encryption of a folder
jobs.py     the jobs of fio, and how much they write (pure)
folder.py   a temporary folder on the disk: space, lock, removal
programs.py fio, pg_test_fsync and cryptsetup, run and stopped
measure.py  all of it, one after the other

The values are in answers/disks.py. Knows no server, no store, no terminal.
"""
