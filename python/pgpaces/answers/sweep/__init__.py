"""The trials of an experiment, or several runs, as words, tables, charts and plain values."""
