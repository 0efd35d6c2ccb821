"""Lists and watches: objects of one kind, as they come and change."""
