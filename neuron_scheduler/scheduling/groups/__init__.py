"""Where a group of pods goes, decided as one: a trial on the cluster that succeeds as a whole or leaves no trace."""
