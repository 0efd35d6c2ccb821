"""What pods ask for by claims on devices (DRA), as pure functions: which devices a selector matches."""
