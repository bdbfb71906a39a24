"""How much a system holds: the section of a search and its charts."""
