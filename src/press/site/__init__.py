"""From executed notebook to page. Only ``hooks`` knows MkDocs; the rest makes HTML from HTML."""
