"""Questions: which trials each needs, which answers it calls, and the sections it ends in."""
