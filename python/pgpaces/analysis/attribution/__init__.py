"""Why transactions were late: outcomes and samples of trials in, possible causes out. Pure."""

from pgpaces.analysis.attribution.causes import Attribution, PossibleCause, attribute

__all__ = ["Attribution", "PossibleCause", "attribute"]
