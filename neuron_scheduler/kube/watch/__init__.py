"""Lists and watches: the objects of a kind, and how they change."""
