"""Why transactions were late: outcomes and samples of trials in, possible causes out. Pure."""

from pgpaces.analysis.attribution.causes import Attribution, Card, attribute, limiting

__all__ = ["Attribution", "Card", "attribute", "limiting"]
