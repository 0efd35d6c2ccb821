"""The process's own ports: health, metrics, the answers to questions and the page; and the connections of any port."""
