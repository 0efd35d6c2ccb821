"""
Files with workloads (Pod, Job, JobSet, LeaderWorkerSet, Deployment and so on) as templates of pods with replicas.

The pod is read by the reader that the running process uses. Refuses I/O: it is given the text.
"""
