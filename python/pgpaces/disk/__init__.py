"""Measurements of a disk: fio's profiles in a folder, and facts of the device under it."""
