"""What a disk can do: fio's profiles on a folder, and what is known of the device under it.

device.py   where a folder lies: file system, device, encryption
jobs.py     what fio is asked to do, and how much it writes (pure)
folder.py   a folder of ours on the disk: room, lock, never left behind
programs.py fio, pg_test_fsync and cryptsetup, run and stopped
measure.py  all of it, one after the other

The values are in answers/disks.py. Knows no server, no store, no terminal.
"""
