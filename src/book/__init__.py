"""Makes the book: environment, execution, pairing, shape comments, site.

These modules work on a checkout and are not part of the installed package. The Makefile calls
them; nothing in ``annotated_attention`` imports them.
"""
