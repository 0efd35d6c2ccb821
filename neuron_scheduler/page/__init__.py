"""The page that shows the fleet, what waits and what was decided, as files for a browser; the answers are not here."""
