"""The embedded API server: kinds, writes, lists, watches and errors as in kube-apiserver."""
