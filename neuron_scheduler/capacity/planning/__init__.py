"""Which machines pods need, which are asked for, and what the limits allow; pure."""
