"""The trials of an experiment, or some runs: gathered, told in words, tables and charts."""
