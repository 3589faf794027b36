"""From percent script to executed notebook; nothing here knows how a site is made."""
