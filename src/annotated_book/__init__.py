"""What the book's chapters show and check with: figures, exercises, published designs, records.

It stands on ``annotated_attention`` and ``attention_doctor``, which know nothing of it. Figures
need the extra ``book``: ``pip install 'annotated-attention[book]'``.
"""
