"""How much load a server holds: which trial comes next, and what all of them say. Pure."""
