"""The answers as frozen values, without the functions that compute them."""
