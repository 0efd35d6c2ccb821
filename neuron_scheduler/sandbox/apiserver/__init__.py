"""The embedded API server: kinds, writes, lists, watches and errors as kube-apiserver has them."""
