"""The words of other projects for pods that start together: a reader for each, and all end in one `PodGroup`."""
