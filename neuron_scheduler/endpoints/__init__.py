"""The process's own port: who may connect, who is answered next, and what an answer is on the wire."""
