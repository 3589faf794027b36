"""Makes the book: a script becomes an executed notebook (``run``), and that a page (``site``).

``shapes`` checks shape comments on the way; ``setup`` makes the environment that all of it runs in.
These modules work on a checkout and are not part of the installed package. The Makefile calls
them; neither ``annotated_attention`` nor ``attention_doctor`` imports them.
"""
