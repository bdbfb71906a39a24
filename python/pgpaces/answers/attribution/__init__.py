"""Why transactions were late: outcomes and samples of trials in, possible causes out. Pure.

material.py aligns a trial's outcomes with the samples of its sensors, second by second; sessions.py
has what sessions waited for; server.py and machine.py turn both into signs of causes (sign.py);
lift.py is the arithmetic; answer.py ranks; next_step.py writes the next experiment as a command.
Knows no store.
"""

from pgpaces.answers.attribution.answer import Attribution, Card, attribute, limiting

__all__ = ["Attribution", "Card", "attribute", "limiting"]
