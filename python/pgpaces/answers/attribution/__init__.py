"""Why transactions were late: sensors and outcomes of trials in, possible causes out. Pure.

material.py lines a trial's outcomes and what was seen beside it up, second by second; sessions.py
has what sessions waited for; signals.py, server.py and machine.py turn that into the signs of
causes; lift.py is the arithmetic; answer.py ranks; next_step.py has the next experiment as a
command. Knows no store.
"""

from pgpaces.answers.attribution.answer import Attribution, Card, attribute, limiting

__all__ = ["Attribution", "Card", "Limit", "attribute", "limiting"]
